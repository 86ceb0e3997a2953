// Package tcp is the NVMe/TCP binding (NVMe/TCP Transport Specification 1.0): in-capsule data, R2T
// and H2CData, C2HData and the SUCCESS flag, digests, terminate requests. It serves both sides:
// ListenTarget for a target (package nvme/target), Transport for a host (package nvme/host). Package
// pdu encodes and decodes the PDUs.
//
// # One connection
//
// A TCP connection is one NVMe queue pair. Each has one reader goroutine, which runs to
// completion: it receives a batch with one recvmsg, parses every PDU in it, places their data,
// hands the commands to the engine (or the completions to the host core), which usually answers
// before it returns, and writes everything that was posted with one sendmsg before it waits again.
// Another goroutine that posts while the connection is quiet sends its message itself; while a batch
// is being parsed or a send is under way, it only queues the message, and the goroutine at work sends
// it too (flat combining). A second goroutine exists per connection for one purpose: to wait while
// the peer's window is closed. It sleeps otherwise, and an idle connection uses no processor time. No
// call on a socket blocks: waiting is done in Go's poller, and the scheduler isn't told of the calls,
// unless pages of a mapped file that they move data to or from may be missing.
//
// # Looking before sleeping
//
// If the last waits of a connection were short, its reader looks for data before it sleeps, by receiving again
// and again (BusyPoll, package busypoll): a sleep and a wake-up would take longer than the peer's answer. Other
// goroutines run in between. At most half of the processors look for the connections of a program (one if it has
// only one). None look while more connections than that have work, since these need the processor, or after a
// turn of many commands, since those that arrive during a sleep make another such turn. If many looks find
// nothing, because something else uses the processors that the peer needs, none are made for as long as sleeping
// makes waits shorter.
//
// # Sockets
//
// Package socket says what is needed of TCP, and is the only one that makes system calls on sockets. A program may have
// another TCP than the kernel's carry its connections (TargetConfig.Network and HostConfig.Network). The example "memory"
// has one that needs no sockets, with which a program's own tests can run target and host in virtual time.
//
// # Within one host
//
// A connection that doesn't leave the host uses Reno instead of the system's congestion control, which may pace
// by timers; there is no congestion to control.
//
// # Where data lies
//
// The kernel gathers sent data from where it lies: a view of the volume, the target's pool, or the host's
// buffer. That is zero-copy as far as user space goes, and scatter-gather I/O, though the kernel copies
// (MSG_ZEROCOPY isn't used). PDU headers and digests are staged next to each other in a small buffer
// of the connection. Received data is read straight into its final place as soon as a PDU's header is
// known; data that arrived in the same read as the header (usually that of a small command) is copied
// out of the read buffer, once.
//
// # Ownership
//
// A target's request slot belongs to the engine from Queue.Submit to Conn.Respond, and is reused
// after Request.Sent. A host's request belongs to the transport from Submit until Sink.Completed or
// Sink.Closed. Memory is bounded by the queue depth, the size of the pool (TargetConfig.Memory), and
// the limit on connections.
//
// # Flow control
//
// Flow control is NVMe/TCP's and TCP's own. A target asks for the data of a write with one R2T (ready to
// transfer) for all of it, and only when it has memory to place it in: this is the backpressure on a host, while
// commands in capsules are bounded by the queue depth. Memory is shared out among peers, the oldest request
// first (fair queueing, internal/mem's Pool). While the peer's receive window is closed, messages stay queued in
// the writer, and only its own goroutine waits. Congestion control is the kernel's. There is no rate limiting.
//
// # Knobs
//
// TargetConfig and HostConfig; the zero value of each is what Linux peers expect. Counters reports what happened.
//
// # Where to change what
//
//	configuration, errors, what is counted           config.go, errors.go, counters.go
//	receiving: a connection's turns, and its PDUs    reader.go, reader_pdu.go
//	looking before sleeping, and who may             look.go, census.go
//	sending: messages, and what one call gathers     writer.go, batch.go, plain.go
//	digests of memory whose pages may be missing     digest.go
//	ending a socket                                  linger.go
//	who sees all bytes                               tap.go
//	a host: the Transport                            host.go
//	    a queue, and its commands                    host_conn.go, host_slot.go
//	a target: the Listener, its discovery log entry  target.go, discovery.go
//	    a connection, and how it ends                target_conn.go, target_end.go
//	    what the engine wants of it (target.Conn)    target_engine.go
//	    a command, its R2T and its response          target_request.go
//	    hosts that don't send what was asked for     target_watch.go
package tcp
