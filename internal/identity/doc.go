// Package identity keeps the name of this host and its UUID where nvme-cli keeps them, so that
// a target recognizes the host: in the files hostnqn and hostid in /etc/nvme, or for an
// ordinary user in $XDG_CONFIG_HOME/nvme if /etc/nvme has none.
//
// If nothing is saved, the identity is derived from /etc/machine-id, which is just as
// permanent; only a machine without one gets a new identity, which is then saved. Where that
// fails too, as in a container whose file system is read-only, each program has its own. A
// Store may be used from any goroutine and by several programs at once.
package identity
