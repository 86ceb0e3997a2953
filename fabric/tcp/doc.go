// Package tcp is the NVMe/TCP binding (NVMe/TCP Transport Specification 1.0): in-capsule data, R2T
// and H2CData, C2HData and the SUCCESS flag, digests, terminate requests. It serves both sides:
// ListenTarget for a target (package nvme/target), Transport for a host (package nvme/host). How PDUs
// look is package pdu's.
//
// # One connection
//
// A TCP connection is one NVMe queue pair. Each has one reader goroutine, which runs to
// completion: it receives a batch with one recvmsg, parses every PDU in it, places their data,
// hands the commands to the engine (or the completions to the host core), which usually answer
// before they return, and writes everything they posted with one sendmsg before it waits again.
// Whoever posts from another goroutine while the connection is quiet writes from there; while
// a batch is parsed or a write is under way, it only queues, and the one at work takes it along
// (flat combining). A second goroutine exists per connection for one purpose: to wait while the
// peer's window is closed. It sleeps otherwise, and an idle connection costs nothing. No call on a
// socket waits: waiting is done in Go's poller, and the scheduler isn't told of the calls,
// unless pages of a mapped file may be missing where they move data.
//
// # Looking before sleeping
//
// Where the last waits of a connection were short, its reader receives again and again before it sleeps
// (BusyPoll, package busypoll): a sleep and a wake-up take longer than the peer's answer. Other goroutines run
// in between. At most half of the processors look for the connections of a program (one where it has only
// one), and none while more connections than that have work, which need the processor, or after a turn of many
// commands, since what comes during a sleep makes another. Where many looks find nothing, because something
// else has the processors that the peer needs, none are made for as long as sleeping makes waits shorter.
//
// # Within one host
//
// A connection that doesn't leave the host uses the congestion control Reno instead of the system's, which may
// pace what it sends by timers; there is nothing to control.
//
// # Where data lies
//
// Sent data is gathered by the kernel from where it lies: a view of the volume, the target's pool, the
// host's buffer: zero-copy as far as user space goes, and scatter-gather I/O, though the kernel copies
// (MSG_ZEROCOPY isn't used). PDU headers and digests are staged next to each other in a small buffer
// of the connection. Received data is read straight into its final place as soon as a PDU's header is
// known; what came along with the header in the same read (a small command's data, usually) is copied
// out of the read buffer, once.
//
// # Ownership
//
// A target's request slot belongs to the engine from Queue.Submit to Conn.Respond, and is used
// again after Request.Sent. A host's request belongs to the transport from Submit until
// Sink.Completed or Sink.Closed. Memory is bounded by the queue depth, the size of the pool
// given in TargetConfig.Memory, and the limit of connections.
//
// # Flow control
//
// Flow control is NVMe/TCP's and TCP's own. A target asks for the data of a write with one R2T (ready to
// transfer) for all of it, and only when it has memory to place it: this is the backpressure that a host
// feels, while commands in capsules are bounded by the queue depth. Memory is shared out among peers, the
// oldest request first (fair queueing, internal/mem's Pool). Where the peer's receive window is closed,
// messages stay queued in the writer, and no goroutine but its own waits. Congestion control is the
// kernel's. There is no rate limiting.
//
// # Knobs
//
// TargetConfig and HostConfig; the zero value of each is what Linux peers expect. Counters
// tells what happened.
package tcp
