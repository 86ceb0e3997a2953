// Package roce is a software RNIC: RoCEv2 (IBTA volume 1 with annexes A16 and A17) over one
// UDP socket. A Device fulfils verbs.Device for reliable connections, and carries the
// management datagrams of QP 1 that package cm makes connections with.
//
// Programs open one by package softrnic, which has the socket and RDMA-CM too, and reach it by
// RNIC.Device. Open takes a socket of internal/udp, so that only this module's packages can call it.
//
// # What is offered
//
// SEND, SEND with Immediate and with Invalidate, RDMA WRITE and WRITE with Immediate, RDMA
// READ, CmpSwp and FetchAdd; type 2 memory windows, bound and invalidated in the send queue;
// path MTU 256 to 4096; IPv4 and IPv6. Unreliable datagram queue pairs are not offered
// (verbs.ErrUnsupported): QP 1 is the one that anybody here needs, and it has methods of its
// own, SendMAD and HandleMADs.
//
// # How it runs
//
// Each device has one engine, a goroutine that receives a batch of datagrams, checks their
// ICRCs, runs the state machines under the device's lock, calls the handlers of armed
// completion queues without it, and sends everything that came of it in one system call. It
// blocks in the socket when there is nothing to do, after it looked for datagrams for some
// microseconds if that has been of use (package udp).
//
// Who posts from another goroutine sends in that goroutine, unless the engine is in a turn:
// then the work leaves with the engine's next batch; where handlers post much, some leaves before
// they are all called. One goroutine sends at a time; another
// that has something to send leaves it to that one and goes on. The lock is not held during
// the system call: on two processors one receives while the other sends. A batch is put
// together under the lock, WRITEs and answers of all queue pairs before other requests before
// ACKs, so that trains are long. Its ICRCs are made after that, and it is sent, two trains at a time.
//
// A handler may post, modify and destroy. Where completions come of a call from outside (a
// flush by Modify, a signaled WRLocalInv) the handler is called soon from another goroutine,
// never inside of the call.
//
// # Memory
//
// Payloads are gathered by the kernel from where they lie (scatter-gather, zero-copy in user space), and copied
// once on arrival, from the receive buffer to their place. What goes to a peer with which the socket shares memory
// (udp.Sharing) is copied there while its ICRC is made. L_Keys and R_Keys are looked up for each packet, so that a
// key that is gone works no more, and Dereg and Destroy wait for a batch that is just being sent. The same holds
// when a late ACK completes a request that is just being retransmitted.
//
// The addresses of memory regions are the device's own, not the process's. R_Keys are 32
// random bits each; every binding of a window has a new one.
//
// # Reliability
//
// With most peers requests are retried by go-back-N: on a sequence error NAK, where an answer overtook a lost
// one, and after a few round trips of silence, then with the oldest packet alone until something is heard
// (see inflight). The local ACK timeout of the queue pair, long with every RDMA peer, decides only when such
// a retry counts. READs are asked for in pieces, so that what comes back fits our own receive buffer; what
// is sent is bounded by a window for each peer, which opens with ACKs and closes with congestion
// notifications and losses (see congestion).
//
// In the terms of TCP the window is a congestion window: it begins with slow start, goes on with
// congestion avoidance by additive increase and multiplicative decrease (AIMD), and takes marks by
// ECN, which CNPs bring back as in DCQCN; there is no pacing, and no rate limiting. The early retry is
// a retransmission timeout from the smoothed round trip (SRTT, RTO), with exponential backoff and Karn's algorithm.
// Flow control of a receiver that has posted nothing is the RNR NAK; there are no end-to-end credits.
//
// A responder holds what comes ahead of a lost packet, and executes it when that is here. Two devices of our kind
// know each other by options in the messages of CM (those of RDMA's enhanced connection establishment does); the
// responder tells then what it holds, and the requester sends again, or asks again for, what is missing and no
// more: selective acknowledgement and retransmission (SACK), from a reorder buffer on one side and a scoreboard on
// the other (see reorder, selective), with tail loss probes (see probe). Where the interfaces of both have room
// for it, packets of SENDs between them carry wire.LongSend bytes more than the path MTU (OptionLongSend), a WRITE
// of one packet takes a short SEND behind it along (OptionWriteSend), and packets of data are as long as jumbo
// frames or loopback allow (OptionJumboData, OptionLongData). SENDs of one packet and READs take acknowledgements
// along, which are packets of their own only where there is no request to leave (OptionAckAlong): piggybacked
// ACKs. Packets of a SEND, and of an answer, are of one size, for trains. Other peers see nothing of this but
// options of no vendor, which they ignore.
//
// A responder keeps as many records of READs and atomics as the peer may have outstanding, and
// answers repeated ones from them. Answers leave in the order of the requests; the ACKs of a
// batch are one.
//
// The IPv4 Identification, which the ICRC covers and a socket neither shows nor sets, is the
// index of a datagram in its train: 0 for one that is sent alone (package udp). On arrival
// another Identification is solved for, which leaves 16 bits of the ICRC's strength (package
// wire). IPv6 has none of this. Queue pairs of two devices of our kind on one host may have been
// made with OptionNoICRC: their packets have none, and all others still need one.
//
// # Ownership and concurrency
//
// The device owns the socket. All methods of all objects may be called from any goroutine;
// Close not from a handler. There is no allocation for each request in steady state.
package roce
