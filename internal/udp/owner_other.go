//go:build !linux

package udp

import "net/netip"

func inUseRemedy(netip.AddrPort) string { return "stop the program that has it" }
