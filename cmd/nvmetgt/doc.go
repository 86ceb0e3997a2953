// Command nvmetgt exports volumes as NVMe namespaces over RDMA and TCP.
//
// # Where to change what
//
//	the commands                                           main.go
//	serve: its flags, and the server that it starts        serve.go, flags.go, server.go
//	    volumes, endpoints, secrets                        volumes.go, listeners.go, secrets.go
//	    a change of the configuration: what can be undone  apply.go
//	        and what can't; which hosts meanwhile          commit.go, hosts.go
//	        settings that can't be changed                 fixed.go
//	    what the control socket asks for                   control.go
//	    sizes of volumes; signals for wrappers             watch.go
//	    draining and ending; what systemd is told          stop.go, service.go
//	    the log                                            log.go
//	ctl: its commands, and what show shows                 ctl.go, show.go
//	    subsystems and namespaces                          ctlexport.go
//	    hosts, endpoints, ANA states                       ctlaccess.go
//	check, import, pmem                                    check.go, import.go, pmem.go
package main
