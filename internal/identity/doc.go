// Package identity keeps the name of this host and its UUID where nvme-cli keeps them, so that
// a target knows the host again: the files hostnqn and hostid in /etc/nvme, or for an ordinary
// user in $XDG_CONFIG_HOME/nvme where /etc/nvme has none.
//
// Where nothing is saved, the identity is derived from /etc/machine-id, which is as lasting;
// only a machine without one gets a new identity, which is then saved. A Store may be used
// from any goroutine and by several programs at once.
package identity
