// Package simnet is a network in memory for tests: its endpoints are udp.Conns, and its paths
// have latency, bandwidth, queues and every fault a real one has.
//
// # Time
//
// Nothing here has a goroutine or a socket. A datagram gets its time of arrival when it is sent,
// and the receiver waits for that with a channel and a timer, so that a blocked Recv is durably
// blocked in the sense of testing/synctest: inside a bubble, where the Network has to be made
// too, hours of retransmission pass in no time. Outside of a bubble the same code runs in real
// time.
//
// # Faults
//
// A Link describes the way from one address to another; the way back is a Link of its own. Its
// faults are drawn from one random source, so that a seed repeats a run as far as the order of
// sends repeats; a test takes its seed from SeedFor, which has it printed if the test fails. Losses
// are independent or come in bursts. The queue of a Port is shared by all ways to an address: that
// is a bottleneck. A Filter sees each datagram first and decides for a test that wants a
// particular one lost, late, twice or altered. Cut and Restore break a way and mend it.
//
// # Fidelity
//
// Datagrams are copied at Send, and trains are split, as the kernel does. What is read is
// overwritten at the next Recv, so that a reader who keeps it is found out. With
// Config.Coalesce, neighbours of equal size from one sender are received as one, as UDP_GRO
// does. A datagram longer than the MTU, one for an address where nobody listens, and one that
// finds the receive buffer full disappear; Stats tells how many.
//
// # Concurrency
//
// Everything may be called from any goroutine, except that one at a time receives on an
// Endpoint and that a Filter, which is called for one datagram at a time, must not send.
package simnet
