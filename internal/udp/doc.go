// Package udp moves UDP datagrams in batches: many per system call, coalesced by the kernel
// (UDP_GRO) and segmented by it (UDP_SEGMENT), gathered from where they lie.
//
// It knows nothing of what the datagrams hold. Linux is what it is made for; the facts of the
// operating system stay in the files named *_linux.go. Elsewhere Listen reports that the
// system is not supported.
//
// # What a sender may rely on
//
// The socket is bound to one address, unconnected, and never fragments (IP_PMTUDISC_DO). So
// Linux puts Don't Fragment and Identification 0 into the IPv4 header of a datagram that
// leaves alone, and 0, 1, 2 … into those of a Train. A protocol whose checksum covers these
// fields, as RoCEv2's ICRC does, computes it for exactly these values. Network cards that
// segment UDP by themselves may number otherwise; such hardware wants tx-udp-segmentation
// off, or Config.DisableSegmentation.
//
// When the kernel or the route refuses segmentation, Send stops in front of the train that
// was refused and returns ErrSegmentation with the number of trains before it. From then on
// Segmentation reports false: the caller cuts what is left into trains of one datagram each,
// with their checksums made for Identification 0, and sends those.
//
// # Neighbors
//
// With Config.ShareMemory datagrams between two sockets of one user on one host go through memory that
// they share (package neighbor). They look the same to sender and receiver, and are lost where there is no
// room for them. Who sleeps in the socket is woken by a datagram of one byte, a bell, that no Recv returns.
// Who makes a train can write it to that memory itself (Sharing), instead of having Send gather it.
//
// # Ownership
//
// The bytes of a Train are read during Send and belong to the caller again when it returns.
// The bytes of a Received belong to the Conn and are overwritten by the next Recv or TryRecv, after which
// those of a neighbor may be no memory any more; they stay readable after Close.
//
// # Concurrency
//
// One goroutine at a time receives. Any number may Send, and any may Close; Close wakes a
// blocked Recv. Nothing is allocated per call.
//
// # Waiting
//
// Recv blocks its thread in recvmmsg on a blocking socket. Of the three ways to wait
// (this, the Go poller, poll(2) after a non-blocking try) it has the shortest wake-up: one
// system call and one context switch, and no second thread that polls on behalf of the
// goroutine. BenchmarkWait keeps the comparison. Before it blocks it looks for datagrams for
// about as long as the caller has lately worked between two waits, at most Config.BusyPoll, where
// the last waits were that short (package busypoll). A caller that said so by Attend is sent to do what
// others offer meanwhile (package duty).
//
// In Go 1.26 a thread that is about to block can hold up the whole program when the collector
// stops the world; while a socket is open a timer bounds that
// (package standstill).
package udp
