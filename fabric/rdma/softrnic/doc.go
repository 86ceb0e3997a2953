// Package softrnic assembles the software provider: a UDP socket, the RNIC on it (roce) and
// RDMA-CM (cm), ready to be handed to a consumer of verbs.
//
//	nic, err := softrnic.Open(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
//	l, err := rdma.ListenTarget(nic, addr, tgt, rdma.TargetConfig{})
//
// It needs no hardware, kernel module or privilege, only UDP port 4791 of its address: there is one RNIC per address, or
// one Group of RNICs, which keeps more than one processor busy. Routes opens the RNICs from which peers are reached.
//
// A consumer must close what it opened on an RNIC before it closes the RNIC. Every method may be called from any
// goroutine, and handlers run as package verbs says.
package softrnic
