// Package softrnic assembles the software provider: a UDP socket, the RNIC on it (roce) and
// RDMA-CM (cm), ready to be handed to a consumer of verbs.
//
//	nic, err := softrnic.Open(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
//	l, err := rdma.ListenTarget(nic, addr, tgt, rdma.TargetConfig{})
//
// It needs no hardware, kernel module or privilege, but UDP port 4791 of its address: one RNIC
// an address. Routes opens those from which peers are reached.
//
// What a consumer opens on an RNIC it closes before it closes that. Every method may be called from any goroutine, and
// handlers run as package verbs says.
package softrnic
