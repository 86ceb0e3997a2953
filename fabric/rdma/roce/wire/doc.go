// Package wire is the packet codec of RoCEv2: the headers of the InfiniBand transport as they
// travel in UDP datagrams to port 4791, and the invariant CRC (ICRC) that ends each packet.
//
//	IPv4 or IPv6 | UDP | BTH 12 | extension headers | payload | pad 0-3 | ICRC 4
//
// It encodes and decodes only: no socket, no clock, no goroutine, and in steady state no
// allocation. Names are those of the InfiniBand Architecture Specification, volume 1 ("IBTA" in
// comments), and of its annexes A17 (RoCEv2) and A19 (memory placement extensions). All fields
// are big-endian but the ICRC.
//
// # Receiving
//
// Make a Flow of a datagram's addresses, Verify each datagram, then Parse it:
//
//	flow := wire.NewFlow(src, dst)
//	if verdict, _ := flow.Verify(datagram, index); verdict == wire.Bad {
//		// count and drop
//	}
//	err := wire.Parse(&packet, datagram)
//
// Parse checks what the codec can know: lengths, pad, version, opcode. Its error is an Error, a
// small number to count by. That a payload fits the path MTU, or an opcode the state of its
// queue pair, is for the RNIC to say.
//
// # Sending
//
// AppendHeader writes the headers, Flow.ICRC computes the ICRC over them and over payload that
// stays where it lies, and AppendTrailer writes pad and ICRC. Packet.Append does all three into
// one buffer.
//
// # The Identification, and what the ICRC is worth
//
// Over IPv4 the ICRC covers the Identification, which a UDP socket neither sets nor shows.
//
// Linux gives a datagram from an unconnected socket with IP_PMTUDISC_DO the Identification 0,
// and those of a segmented train 0, 1, 2 and so on: a sender computes ICRCs for these.
//
// A receiver expects the same of a sender like that: the index in the train that the kernel
// coalesced. Where that is right (Exact) the whole 32 bits have been checked; but as the kernel may
// coalesce otherwise than the sender segmented, and as other senders (Linux's rdma_rxe, adapters)
// number freely, Verify falls back on solving for the Identification. CRC is linear, so at most one
// of the 65,536 explains a given ICRC, and an arbitrary error is explained by one of them with
// probability 2^-16. So this is what remains of the ICRC over IPv4 against a corruption that the
// checks below it have missed: no single-bit error passes, one in 66,000 of the two-bit errors of a
// full packet does, and one in 65,536 of the random ones. (In packets with more data than jumbo
// frames hold, which only a sender like ours makes, and sends alone, no Identification but the one
// expected is taken.) The Ethernet CRC has been checked before, and the UDP checksum where the
// sender makes one. A capture socket would see the Identification, but needs privilege; IPv6 has
// none, and there every ICRC is checked whole.
//
// Packets without DF are taken for damaged.
//
// # Concurrency
//
// Everything may be used from any goroutine; a Packet belongs to one at a time. The maps that
// solve for the Identification are made at first use of a packet length and kept: 512 bytes
// each, less than 1.1 MiB in all.
package wire
