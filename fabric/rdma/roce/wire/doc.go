// Package wire is the packet codec of RoCEv2: the headers of the InfiniBand transport as they are sent in UDP datagrams
// to port 4791, and the invariant CRC (ICRC) at the end of each packet.
//
//	IPv4 or IPv6 | UDP | BTH 12 | extension headers | payload | pad 0-3 | ICRC 4
//
// It only encodes and decodes: no socket, no clock, no goroutine, and in steady state no allocation. Names are those of
// the InfiniBand Architecture Specification, volume 1 ("IBTA" in comments), and of its annex A17 (RoCEv2). All fields are
// big-endian except the ICRC.
//
// # Receiving
//
// Make a Flow from a datagram's addresses, Verify each datagram, then Parse it:
//
//	flow := wire.NewFlow(src, dst)
//	if verdict, _ := flow.Verify(datagram, index); verdict == wire.Bad {
//		// count and drop
//	}
//	err := wire.Parse(&packet, datagram)
//
// Parse checks what the codec can know: lengths, pad, version, opcode. Its error is an Error. Whether a payload fits the
// path MTU, or an opcode is valid in the state of its queue pair, is up to the RNIC to check.
//
// # Sending
//
// AppendHeader appends the headers, Flow.ICRC computes the ICRC over them and over a payload that stays in place, and
// AppendTrailer appends pad and ICRC. Packet.Append does all three into one buffer.
//
// # The Identification, and what the ICRC is worth
//
// Over IPv4 the ICRC covers the Identification, which a UDP socket can neither set nor read.
//
// Linux gives a datagram from an unconnected socket with IP_PMTUDISC_PROBE the Identification 0, and those of a segmented
// train 0, 1, 2 and so on: a sender computes ICRCs for these.
//
// A receiver expects the same from a sender like that: the index in the train that the kernel coalesced. If that is
// right (Exact), all 32 bits have been checked. But the kernel may coalesce in a different way than the sender
// segmented, and other senders (Linux's rdma_rxe, adapters) may number as they like, so Verify falls back on solving
// for the Identification. CRC is linear, so at most one of the 65,536 explains a given ICRC, and an arbitrary error is
// explained by one of them with probability 2^-16. So this is the remaining strength of the ICRC over IPv4 against a
// corruption that the checks below it have missed: no single-bit error passes, one in 66,000 of the two-bit errors of a
// full packet does, and one in 65,536 of the random ones. (In packets with more data than jumbo frames hold, which only
// a sender like ours makes, and sends alone, only the expected Identification is accepted.) The Ethernet CRC has been
// checked before, and so has the UDP checksum if the sender computes one. A capture socket would show the
// Identification, but needs privileges; IPv6 has none, and there every ICRC is checked completely.
//
// Packets without DF are treated as damaged.
//
// # Concurrency
//
// Everything may be used from any goroutine; a Packet by only one at a time. The maps that solve for the Identification
// are made at the first use of a packet length and kept: 512 bytes each, less than 1.1 MiB in all.
package wire
