//go:build !linux

package udp

// DedicateThread does nothing here.
func DedicateThread() {}
