// Package host is the initiator core of NVMe over Fabrics: it connects to controllers, runs
// commands on their queues, keeps them alive and notices when they are lost. It is blind to
// the transport: the bindings in fabric/rdma and fabric/tcp fulfil [Transport].
//
// # Layers
//
// [Connect] makes a [Controller]: the admin queue, enabling, Identify, the I/O queues, keep
// alive and asynchronous events. [Controller.Namespace] opens a [Namespace], whose ReadAt,
// WriteAt, Flush, WriteZeroes, Discard and Compare are synchronous, as are its reservations.
// [Controller.CreateNamespace] and what follows manage namespaces. [Discover] reads the log of a
// discovery controller.
//
// Below them is the asynchronous [Queue]: a [Request] that is submitted ends with a call of
// its Done in the transport's own context, which may submit the next one. That path allocates
// nothing per command, and one lock per submission and one per completion are all it takes.
// Load generators use it. Of the requests on a queue [Queue.Depth] are outstanding at once, and
// others wait in it.
//
// # Ownership
//
// A Request and its Data belong to the queue from Submit until Done. No call returns while the
// transport may still use memory that its caller gave it: a cancelled context has the command
// aborted and waits for its end. Memory of [Controller.Alloc] moves at the least cost; any
// other works.
//
// # Authentication
//
// With [Config].Authentication the host authenticates itself on every queue of a controller that
// demands it, and has the controller prove itself where it has a secret for that.
// [Controller.Authenticate] does so again, also with other secrets. What the protocol makes fail
// matches [ErrAuthentication] and isn't worth another try; a connection that breaks meanwhile is
// a loss like any other.
//
// # Loss
//
// A controller ends as a whole: when one of its connections does, when a command is neither
// answered nor aborted within twice its time-out, or when nothing has arrived for the keep
// alive timeout. Then [Controller.Done] is closed, every outstanding request ends with an
// error that matches [ErrLost] and nvme.StatusHostPathError, and all connections, goroutines
// and timers are released. After [Controller.Close] requests end with [ErrClosed] instead, also
// where the controller is lost before it has shut down.
// A controller doesn't come back: connect again, or let nvme/multipath do it, which stands
// between the owner of a request and the queues as its [Route] and [Carrier].
//
// # Concurrency
//
// Everything may be called from any goroutine. Request.Done must not block, so it must not
// call Do, Shutdown, Close or the methods of Namespace.
package host
