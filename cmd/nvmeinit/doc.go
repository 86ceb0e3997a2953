// Command nvmeinit is an NVMe over Fabrics host in user space: it discovers and connects to
// targets over RDMA and TCP, moves data, and measures.
//
// # Where to change what
//
//	the commands and their groups                         main.go
//	names and arguments as others have them               misplaced.go, absent.go
//	where to connect to, and as whom                      connflags.go, lookup.go, identity.go, secrets.go
//	the transport; why connecting failed, what to do      fabric.go, explain.go
//	whether packets went through shared memory            sharing.go
//	several paths, what is told of them and shown         pathflags.go, paths.go, pathnews.go, story.go, pathtable.go
//	discover, connect, connect-all                        discover.go, connect.go, connectall.go
//	what --hold follows and tells                         follow.go, notices.go, failures.go
//	read, write, compare, and their files and pipes       readwrite.go, compare.go, files.go
//	discard, write-zeroes, write-uncor, verify, copy      ranges.go
//	flush, format, sanitize                               flush.go, erase.go
//	what most other commands share; id-ctrl, id-ns, list  inspect.go
//	the other lists and Identify pages                    lists.go
//	logs, and any log as bytes                            logs.go, effects.go, events.go, rawlog.go
//	properties, features                                  registers.go, features.go
//	namespaces that hosts create, reservations            management.go, reservations.go
//	admin-passthru, io-passthru                           passthru.go
//	how pages are printed: fields, tables, bits, bytes    output.go, pages.go, view.go, bits.go, bittables.go, bytes.go
//	terminals, progress bars                              terminal.go, progress.go
//	bench: the command, and fio's options as its flags    bench.go, benchoption.go
//	    what its jobs run on                              benchdevice.go, benchqueues.go
//	    what it shows, writes and serves of a run         benchlive.go, benchformats.go, benchreport.go,
//	                                                      benchoutput.go, benchlogs.go, metrics.go
//	    --compare, --repeats, --depths, --report          benchcampaignflags.go, benchcampaign.go, benchmeasured.go,
//	                                                      benchtable.go, benchpage.go
package main
