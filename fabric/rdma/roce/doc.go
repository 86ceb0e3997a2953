// Package roce is a software RNIC: RoCEv2 (IBTA volume 1 with annexes A16 and A17) over one UDP socket. A Device
// implements verbs.Device for reliable connections, and carries the management datagrams of QP 1, with which package cm
// establishes connections.
//
// Programs open a device with package softrnic, which also opens the socket and provides RDMA-CM, and get it from
// RNIC.Device. Open takes a socket of internal/udp, so only this module's packages can call it.
//
// # What is offered
//
// SEND, SEND with Immediate and with Invalidate, RDMA WRITE and WRITE with Immediate, RDMA READ, CmpSwp and FetchAdd;
// type 2 memory windows, bound and invalidated in the send queue; path MTU 256 to 4096; IPv4 and IPv6. Unreliable
// datagram queue pairs are not offered (verbs.ErrUnsupported): the only one needed here is QP 1, which has methods of
// its own, SendMAD and HandleMADs.
//
// # Where to change what
//
//	the verbs                                            device.go, pd.go, mr.go, cq.go, qp.go, post.go, errors.go
//	the engine, its turns and its timer                  engine.go, timer.go
//	receiving: ICRC, queue pair, request or answer       rx.go
//	sending: who, in which order, in which trains        tx.go, batch.go, near.go
//	our requests, from the work queue to packets         wqe.go, requester.go, request.go, readqueue.go
//	the answers to them                                  completer.go
//	what is sent again, and when                         retransmit.go, inflight.go
//	the same for a peer of our kind                      selective.go, scoreboard.go, resend.go
//	how much may be on its way, and whose turn it is     path.go, window.go, congestion.go, turns.go
//	requests of peers: in order, ahead, repeated         responder.go, execute.go, reorder.go, duplicate.go
//	the answers to those                                 response.go
//	what is agreed on with a peer of our kind            options.go, engines.go, writesend.go, ackalong.go
//	keys, QP 1, congestion notifications                 keys.go, mad.go, cnp.go
//	limits, and what is counted                          config.go, counters.go
//
// # How it runs
//
// Each device has one engine, a goroutine that receives a batch of datagrams, checks their ICRCs, runs the state
// machines under the device's lock, calls the handlers of armed completion queues without the lock, and sends all that
// came of it in one system call. When there is nothing to do it blocks in the socket, after polling it for some
// microseconds if that has recently been of use (package udp).
//
// A goroutine that posts work sends it itself, unless the engine is in a turn (calling handlers, and then sending):
// then the work leaves with the engine's next batch. If handlers post much, some of it leaves before all of them have
// been called. One goroutine sends at a time; another that has something to send leaves it to that one and goes on. The
// lock is not held during the system call: on two processors one receives while the other sends. A batch is put
// together under the lock: WRITEs and answers of all queue pairs, then other requests, then ACKs, so that trains are
// long. Then its ICRCs are computed and it is sent, two trains at a time.
//
// A handler may post, modify and destroy. When a call from outside a handler (a flush by Modify, a signaled WRLocalInv)
// gives completions, the handler is called soon afterwards from another goroutine, never inside the call.
//
// # Memory
//
// Payloads are gathered by the kernel from where they lie (scatter-gather, zero-copy in user space), and copied once on
// arrival, from the receive buffer to their place. What goes to a peer with which the socket shares memory
// (udp.Sharing) is copied to that memory while its ICRC is computed. L_Keys and R_Keys are looked up for each packet,
// so a key that is gone no longer works, and Dereg and Destroy wait for a batch that is being sent. So does the end of a
// window, if the batch has an answer to a READ through it, and the completion of a request by a late ACK, while the
// request is being retransmitted.
//
// The addresses of memory regions are the device's own, not the process's. R_Keys are 32 random bits each; every
// binding of a window has a new one.
//
// # Reliability
//
// With most peers requests are retried by go-back-N: on a sequence error NAK, when an answer arrives ahead of a lost
// one, and after a few round trips of silence; in the last case only the oldest packet is sent until something is heard
// (see inflight.go). The local ACK timeout of the queue pair, which is long with every RDMA peer, decides only when
// such a retry counts. READs are requested in pieces, so that the answers fit our own receive buffer; what is sent is
// bounded by a window for each peer, which opens with ACKs and closes with congestion notifications and losses (see
// congestion.go).
//
// In the terms of TCP the window is a congestion window: it begins with slow start, goes on with congestion avoidance
// by additive increase and multiplicative decrease (AIMD), and reacts to ECN marks, which CNPs report as in DCQCN;
// there is no pacing, and no rate limiting. The early retry is a retransmission timeout from the smoothed round trip
// (SRTT, RTO), with exponential backoff and Karn's algorithm. Flow control for a receiver that has posted nothing is
// the RNR NAK; there are no end-to-end credits.
//
// A responder holds packets that arrive ahead of a lost one, and executes them once that one is here. Two devices of
// this package (each is a peer "of our kind" to the other) recognize each other by options in the messages of CM (those
// of RDMA's enhanced connection establishment). Between them the responder reports what it holds, and the requester
// sends again, or asks again for, only what is missing: selective acknowledgement and retransmission (SACK), with a
// reorder buffer on one side and a scoreboard on the other (see reorder.go, selective.go), and tail loss probes (see
// probe). If the interfaces of both have room for it, packets of SENDs between them carry wire.LongSend bytes more than
// the path MTU (OptionLongSend), a WRITE of one packet carries a short SEND that follows it (OptionWriteSend), and data
// packets are as long as jumbo frames or loopback allow (OptionJumboData, OptionLongData). SENDs of one packet and
// READs carry acknowledgements, which are separate packets only when there is no request to send (OptionAckAlong):
// piggybacked ACKs. The packets of a SEND, and of an answer, are of one size, for trains. Other peers see nothing of
// this except options of a vendor that they don't know, which they ignore.
//
// A responder keeps as many records of READs and atomics as the peer may have outstanding, and answers repeated ones
// from them. Answers leave in the order of the requests; the ACKs of a batch are merged into one.
//
// The IPv4 Identification, which the ICRC covers and a socket neither shows nor sets, is the index of a datagram in its
// train: 0 for one that is sent alone (package udp). On arrival any other Identification is solved for, which leaves 16
// bits of the ICRC's strength (package wire). None of this applies to IPv6. Queue pairs of two devices of our kind on
// one host may have been made with OptionNoICRC: their packets have no ICRC, and all others still need one.
//
// # Ownership and concurrency
//
// The device owns the socket. All methods of all objects may be called from any goroutine, except that Close must not
// be called from a handler. In steady state no request allocates memory.
package roce
