// Package wire is the packet codec of RoCEv2: the headers of the InfiniBand transport as they
// travel in UDP datagrams to port 4791, and the invariant CRC that ends each packet.
//
//	IPv4 or IPv6 | UDP | BTH 12 | extension headers | payload | pad 0-3 | ICRC 4
//
// It encodes and decodes only: no socket, no clock, no lock. Names are those of the InfiniBand
// Architecture Specification, volume 1 ("IBTA" in comments), and of its annexes A17 (RoCEv2)
// and A19 (memory placement extensions).
package wire
