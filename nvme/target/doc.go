// Package target is the NVMe over Fabrics target: subsystems, controllers, namespaces and
// queues, and the commands that run on them. It knows nothing of any transport. A binding
// makes a Queue for each of its connections (Target.NewQueue), hands it capsules
// (Queue.Submit), and fulfils Conn, through which the engine moves data and answers.
//
// # How a command flows
//
// A Request belongs to the transport until Queue.Submit and from Conn.Respond on; in between
// it is the engine's. Submit parses it once, and it runs to its end in the same call where
// the volume answers at once: a read of a blockdev.Memory volume responds with a view of the
// volume's own memory; any other read or write gets memory from Conn.Alloc, the host's data
// by Conn.Pull, and then goes to the volume. Where something has to be waited for, the
// command goes on from Request.Resume (memory), Request.Pulled (data) or the volume's
// completion, in the goroutine that calls them. Every request is responded to exactly once,
// whatever happens to the connection, the controller or the namespace meanwhile.
//
// An I/O allocates nothing: the volume's request is part of ours, and continuations are
// functions chosen ahead. Administrative commands build their pages on the heap.
//
// # Ownership and concurrency
//
// Capsules of one queue are submitted from one goroutine at a time; everything else may be
// called from any. On the path of an I/O there are only atomics: the controller's readiness,
// the table of namespaces (replaced as a whole when it changes), and the counters of the
// queue and of the namespace, which are sharded by queue. Target.mu guards the tables of
// subsystems, controllers and queues; controller.mu what a controller's commands change. The
// first is taken before the second, and neither is held while a Conn or a Volume is called.
//
// The engine has no goroutine of its own on the path of an I/O: keep-alive and Connect timers run
// on the runtime's, and an idle target does nothing. The mathematics of authentication runs in
// goroutines that live as long as it takes; so does what has to be saved, created or erased, in
// goroutines that end with their subsystem (Subsystem.work).
//
// # Authentication
//
// Where Authentication demands it, a queue that was connected executes nothing but Authentication
// Send and Receive until the host has shown that it knows its secret. The protocol is a type of its
// own, transaction, which knows messages only; queueAuth adds the queue, the time and the places
// where it is computed.
//
// # Time
//
// A command costs two readings of the monotonic clock, when it arrives and when it is
// answered. The first also tells the keep-alive timer that the host lives, so that nothing
// has to be counted for that; a transport may share it among commands that came together
// (Request.Arrived).
package target
