// Package udp moves UDP datagrams in batches: many per system call, coalesced (UDP_GRO) and segmented (UDP_SEGMENT) by
// the kernel, and gathered from where they lie in memory.
//
// It knows nothing about what the datagrams contain. Everything that depends on the operating system, which is Linux, is
// in the files named *_linux.go.
//
// # What a sender may rely on
//
// The socket is bound to one address, unconnected, and never fragments (IP_PMTUDISC_PROBE). So Linux sets Don't Fragment
// and Identification 0 in the IPv4 header of a datagram that is sent alone, and Identification 0, 1, 2 … in those of a
// Train. A protocol whose checksum covers these fields, as RoCEv2's ICRC does, computes it for exactly these values.
// Network cards that segment UDP themselves may number differently; for such hardware turn tx-udp-segmentation off, or
// set Config.DisableSegmentation.
//
// When the kernel or the route refuses segmentation, Send stops before the refused train and returns ErrSegmentation
// with the number of trains before it. From then on Segments reports false, for all destinations if the kernel refused,
// and for a minute for the train's own if only the route did: the caller splits what is left for those into trains of
// one datagram each, with checksums computed for Identification 0, and sends those.
//
// # Neighbors
//
// With Config.ShareMemory, datagrams between two sockets of one user on one host go through memory that the two share
// (package neighbor). They look the same to sender and receiver, and are lost if there is no room for them. A receiver
// that sleeps in the socket is woken by a datagram of one byte, the bell, which Recv never returns. A caller can also
// write a train directly to the shared memory (Sharing) instead of having Send gather it.
//
// # Groups
//
// Several sockets may share an address and port (ListenGroup), so that several goroutines can receive, each from its own.
// A program that sees the first bytes of each datagram chooses among them. The kernel looks at a train as a whole: unless
// it has been cut on its way, it goes where its first datagram does.
//
// # Ownership
//
// The bytes of a Train are read during Send and belong to the caller again when it returns. The bytes of a Received
// belong to the Conn and stay readable after Close, but the next Recv or TryRecv overwrites them, and may unmap those
// that came from a neighbor.
//
// # Concurrency
//
// Only one goroutine at a time may receive. Any number may Send, and any may Close; Close wakes a blocked Recv. No call
// allocates.
//
// # Waiting
//
// Recv blocks its thread in recvmmsg on a blocking socket. Of the three ways to wait (this, the Go poller, poll(2)
// after a non-blocking attempt) it has the shortest wake-up: one system call and one context switch, and no second
// thread that polls on behalf of the goroutine. BenchmarkWait keeps the comparison. Before it blocks, it polls for
// datagrams for about as long as the caller has recently worked between two waits, at most Config.BusyPoll, if the last
// waits were that short (package busypoll). If the caller has registered with Attend, Recv returns early when there are
// tasks for it to do (package duty).
//
// In Go 1.26 a thread that is about to block can hold up the whole program when the garbage collector stops the world;
// while a socket is open, a timer bounds how long (package standstill).
package udp
