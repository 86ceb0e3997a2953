// Package host is the initiator core of NVMe over Fabrics: it connects to controllers, runs commands on their
// queues, keeps them alive and detects their loss. It is independent of the transport: the bindings in fabric/rdma
// and fabric/tcp implement [Transport].
//
// # Layers
//
// [Connect] returns a [Controller]: the admin queue, enabling, Identify, the I/O queues, keep alive and
// asynchronous events. [Controller.Namespace] opens a [Namespace], whose ReadAt, WriteAt, Flush, WriteZeroes,
// Discard, Compare, Verify, WriteUncorrectable and Copy are synchronous, as are its reservation commands.
// [Controller.CreateNamespace] and its companions manage namespaces, [Controller.Format] and [Controller.Sanitize]
// erase them. [Discover] reads the log of a discovery controller.
//
// Below them is the asynchronous [Queue]: a [Request] that is submitted ends with a call of its Done in the
// transport's own context, which may submit the next one. That path allocates nothing per command, and takes one
// lock per submission and one per completion. Load generators use it. At most [Queue.Depth] requests of a queue are
// outstanding at once; the others wait in the queue.
//
// # Ownership
//
// A Request and its Data belong to the queue from Submit until Done. No call returns while the transport may still
// use memory that the caller passed: if the context is cancelled, the command is aborted, and the call waits for it
// to end. If that takes longer than five seconds, the controller is given up, and so lost to everyone who uses it.
// Memory from [Controller.Alloc] is the cheapest to transfer; any other memory works too.
//
// # Authentication
//
// With [Config].Authentication the host authenticates itself on every queue of a controller that demands it, and,
// if it has a secret for the controller, makes the controller prove itself. [Controller.Authenticate] does so
// again, also with other secrets. A failure of the protocol matches [ErrAuthentication] and isn't worth a retry; a
// connection that breaks in the meantime is a loss like any other.
//
// # Loss
//
// A controller ends as a whole: when one of its connections does, when a command is neither answered nor aborted
// within twice its timeout, or when nothing has arrived for the keep alive timeout. Then [Controller.Done] is
// closed, every outstanding request ends with an error that matches [ErrLost] and nvme.StatusHostPathError, and all
// connections, goroutines and timers are released. After [Controller.Close], requests end with [ErrClosed] instead,
// even if the controller is lost before it has shut down. A controller doesn't come back: connect again, or let
// nvme/multipath do it, which acts between the owner of a request and the queues as its [Route] and [Carrier].
//
// # Errors
//
// errors.Is and errors.As find the cause, whatever wraps it:
//
//	what happened                 the error matches
//	───────────────────────────── ──────────────────────────────────────────────────────────────────────────────
//	a command failed              its nvme.Status, such as nvme.StatusUnrecoveredRead, and *nvme.StatusError
//	the subsystem isn't there     nvme.StatusConnectInvalidParameter
//	the host isn't allowed        nvme.StatusConnectInvalidHost
//	authentication failed         ErrAuthentication
//	nobody listens at the address TCP: syscall.ECONNREFUSED; RDMA: *rdma.RejectError with the Reason
//	                              verbs.RejectInvalidServiceID
//	nobody answers there          net.Error, whose Timeout reports true; and ErrTimeout, if Config.ConnectTimeout
//	                              ended first
//	the controller was lost       ErrLost, and what made it so: ErrTimeout, ErrKeepAlive, … or the transport's error
//	the caller's context ended    context.Canceled or context.DeadlineExceeded
//
// # Concurrency
//
// Everything may be called from any goroutine. Request.Done must not block, so it must not
// call Do, Shutdown, Close or the methods of Namespace.
//
// # Where to change what
//
//	what callers configure, and the errors they get          config.go, errors.go
//	the interface to transports                              transport.go
//	connecting, enabling, Identify                           connect.go, enable.go, identify.go
//	a controller; how it is shut down and closed             controller.go, close.go
//	a queue, its requests, and those that wait for an entry  queue.go, request.go, waiting.go
//	calls that wait for their command                        do.go
//	commands that take too long or are cancelled: Abort      timeouts.go, abort.go
//	keep alive; asynchronous events                          keepalive.go, events.go
//	a namespace: opening it                                  namespace.go
//	    reads, writes and the other commands; Copy           namespace_io.go, namespace_copy.go
//	    transfers of several commands                        transfer.go
//	    reservations                                         reservation.go
//	creating and attaching namespaces; Format, Sanitize      management.go, erase.go
//	features; log pages                                      features.go, log.go
//	discovery: one controller, and those it refers to        discovery.go, crawl.go
//	authentication                                           auth.go
//	what is counted                                          counters.go
package host
