// Package simnet is a network in memory for tests: its endpoints are udp.Conns, its TCP is a socket.Network, and its
// paths have latency, bandwidth, queues and every fault that a real network has.
//
// # Time
//
// Nothing here has a goroutine or a socket. A datagram gets its time of arrival when it is sent, and the receiver waits
// for that with a channel and a timer (a segment of TCP is taken by a timer's function), so that a blocked Recv is
// durably blocked in the sense of testing/synctest: inside a bubble, in which the Network must be created too, hours of
// retransmission pass in no time. Outside a bubble the same code runs in real time.
//
// # Faults
//
// A Link describes the path from one address to another; the path back is a Link of its own. Its faults are drawn from
// one random source, so that a seed repeats a run as far as the order of sends repeats; a test takes its seed from
// SeedFor, which prints it if the test fails. Losses are independent or come in bursts. The queue of a Port is shared
// by all paths to an address: a bottleneck. A Filter sees each datagram first; with it a test can lose, delay,
// duplicate or alter a particular datagram. Cut and Restore break and restore a path.
//
// # Fidelity
//
// Datagrams are copied at Send, and trains are split, as the kernel does. Received data is overwritten by the next
// Recv, which exposes readers that keep it. With Config.Coalesce, consecutive datagrams of equal size from one sender
// are received as one, as with UDP_GRO. A datagram that is longer than the MTU, is for an address where nobody listens,
// or finds the receive buffer full is dropped; Stats counts them.
//
// # TCP
//
// TCP sends segments over the same paths, and sends them again when they are lost: a cut holds a stream back, and ends
// the connection only after very long. Segments end anywhere, and connections have buffers of different sizes, down to
// 4 KiB. There is no congestion control. What a call on a connection returns after resets, and after closing either
// direction, is what Linux returns: tests compare the two.
//
// # Concurrency
//
// Everything may be called from any goroutine, except that only one at a time may receive on an Endpoint, and that a
// Filter, which is called for one datagram at a time, must not send.
package simnet
