// Package target is the NVMe over Fabrics target: subsystems, controllers, namespaces and
// queues, and the commands that run on them. It knows nothing of any transport. A binding
// makes a Queue for each of its connections (Target.NewQueue), hands it capsules
// (Queue.Submit), and fulfils Conn, through which the engine moves data and answers.
//
// # How a command flows
//
// A Request belongs to the transport until Queue.Submit and from Conn.Respond on; in between
// it is the engine's. Every request is responded to exactly once, whatever happens to the
// connection, the controller or the namespace meanwhile. A command runs to its end inside of
// Submit where nothing has to be waited for. Elsewhere it goes on at "···►", in the goroutine
// that calls.
//
//	the command                                      file         goroutine              lock
//	──────────────────────────────────────────────── ──────────── ────────────────────── ────────────────────
//	capsule ► Queue.Submit                           queue.go     the transport's        none
//	  begin: the engine takes the Request over       request.go   "                      Queue.stop, the first time
//	  ├ not connected: beforeConnect ► connect       fabrics.go   "                      Target.mu, controller.mu
//	  ├ queue draining: keep                         drain.go     "                      Queue.stop
//	  ├ Fabrics command: fabrics                     fabrics.go   " or authentication's  Target.mu, controller.mu
//	  ├ controller not live: notReady                queue.go     "                      controller.mu
//	  ├ admin queue: admin                           admin.go     " or Subsystem.work    controller.mu, others
//	  ├ half of a fused pair: fuse                   fused.go     "                      gate.mu
//	  ▼
//	io: which command                                io.go        "                      none
//	  ▼
//	namespace: a user more in Namespace.shards       gate.go      "                      none: Namespace.state is 0
//	  ├ closed, or held: park ···► unparked ► io     gate.go      who opens it           gate.mu
//	  ▼
//	blocks, transfer ► Conn.MapSGL                   io.go        "                      none
//	  ├ read of a volume in memory: Memory.View ► respond
//	  ├ write to a volume that lends memory: borrow ► pull
//	  ▼
//	withMemory ► Conn.Alloc                          request.go   "                      none
//	  ├ there is none: ···► Request.Resume           request.go   who frees memory       none
//	  ▼
//	pull ► Conn.Pull                                 request.go   "                      none
//	  ├ the host's data: ···► Request.Pulled         request.go   the transport's        none
//	  ▼
//	submit; run, where it takes several operations   request.go,  "                      chains.mu in run
//	  ▼                                              chain.go
//	toVolume ► Volume.Submit                         hold.go      "                      none
//	  ├ ···► Complete of the volume's request        request.go   the volume's, or "     none
//	  ▼
//	respond: counts it, SQHD ► Conn.Respond          request.go   "                      errorLog.mu on an error
//	  ├ ···► Request.Sent: a user less, views end    request.go   who sent it            none: Namespace.state is 0
//
// The mark " is for whoever has got there. What needs no data skips memory and pull; so does what came
// in the capsule, where the volume takes it as it lies. The transport's goroutine is over TCP the
// reader of the connection, over RDMA the one that handles completions: with the software RNIC mostly
// its engine. Where a connection ends, who ends it calls Resume and Pulled.
//
// There is zero-copy, in user space, where a volume in memory gives a view (Memory.View) for a read,
// or lends memory (Lender.Lend) for a write. An I/O allocates nothing: the volume's request is part of
// ours, and continuations are functions chosen ahead. Administrative commands build their pages on the
// heap.
//
// # Who waits for whom
//
// No goroutine of a transport or a volume waits. What has to is kept in a list, or a timer looks
// whether it can go on, where to be told would cost every command something. Those who call
// RemoveNamespace, RemoveSubsystem, Drain or Close wait, and what runs in Subsystem.work.
//
//	what waits                           until                                 goes on by                file
//	──────────────────────────────────── ───────────────────────────────────── ───────────────────────── ────────────────
//	a command that is parked             its namespace is open, and free of    next, letIn               gate.go, hold.go
//	                                     what its host left there
//	who wants a namespace alone (owner)  no user is left, nor an owner before  put ► quiet, next         gate.go
//	who removes a namespace (remove)     no user is left, nor an owner         put, next ► tellDrained   namespace.go
//	a change of CSTS (settle)            none of its commands reaches volumes  looks (timer)             settle.go
//	commands that are held (hold)        what their host left on controllers   looks (timer)             hold.go
//	                                     that ended is done
//	Target.Drain                         no command is under way, no user      ticker                    drain.go
//	what came to a draining queue        the connection ends                   giveBack                  drain.go
//	Abort of a chain                     the volume has done its operation     endChain                  chain.go
//	the Compare of a fused pair          the next command of its queue comes   takeFused, dropFused      fused.go
//	an event request                     there is an event                     raise ► deliver           aen.go
//
// A chain is a command that takes several operations of a volume. Between any two it is asked whether
// it is to end (chainAborted): for an Abort or a preemption, or because its connection ends, its
// namespace is removed, or, where it is an admin command, its controller is disabled or shut down.
//
// In the usual terms: to exclude is to quiesce a namespace, or to freeze it, for exclusive access,
// behind a barrier that stops later commands; to hold fences a host's new commands off from stale ones
// of a lost controller; to settle is to wait for outstanding commands; Drain is a graceful shutdown,
// which quiesces all I/O queues. Admission control is by limits: newcomers.go for connections,
// newController for controllers. Flow control is SQHD's (Queue.complete), and backpressure comes of
// Conn.Alloc: a command without memory waits, and its data isn't fetched. There is no rate limiting of
// I/O, nor other quality of service; only the log's rate is bounded.
//
// # States of a queue
//
//	     Connect               attach
//	new ─────────► connecting ────────┬───────────────────────► connected ◄──► fused: holds a Compare
//	 ▲                  │             └─► authenticating ─────►   │    │
//	 └──────────────────┘                               ◄─────────┘    │ quiesce, or the controller
//	       refused                             authenticated anew,     ▼ has ended
//	                                           and failed             draining: begins no command
//
//	any: Closing ► down
//
// An admin queue doesn't drain: Keep Alive and Abort go on.
//
// # States of a namespace's gate
//
//	         exclude              quiet: no user is left
//	open ───────────────► closing ──────────────────────► alone
//	 ▲                     │   ▲                            │
//	 │      withdraw of    │   │ the turn of                │ include
//	 │      the first      ▼   │ the next owner             │
//	 └─────────────────── letting in ◄──────────────────────┘
//	  no owner is left
//
//	beside that, for one controller: hold ► held ► unhold, letIn
//	any: refuseAll ► removed, for good
//
//	state       in the code                     a command that comes     those that are parked
//	─────────── ─────────────────────────────── ──────────────────────── ─────────────────────────────────────────
//	open        no nsClosed, no owners          goes on                  none, unless held
//	closing     nsClosed, owners, not running   is parked                wait
//	alone       nsClosed, running               is parked                wait
//	letting in  running, while an owner is left is parked until the next begin anew (unparked), before the next owner
//	                                            letting in               (engine.turn)
//	held        nsHeld, controller in gate.held is parked, if it is of   wait for letIn
//	                                            such a controller
//	removed     nsRemoved                       Invalid Namespace        Invalid Namespace, by letIn
//
// Who has a namespace alone: a fused Compare and Write (fused.go), Format (format.go), Set Features
// that protects it from writes (protection.go), Preempt and Abort (preempt.go), a sanitize operation
// (sanitize.go). None of them is a user while it waits. When it has its turn, the first three become
// one by Namespace.get, which doesn't mind nsClosed; so do a Flush of all namespaces and the flush of
// a shutdown at any time. withdraw takes those out that still wait: when they are aborted (abort.go),
// their connection ends (leave), their controller is disabled or shut down (withdrawFormats), or the
// namespace is removed (turnAway). A sanitize operation, which is nobody's command, stays.
//
// # States of a controller
//
//	 Connect           CC.EN=1             settle          CC.SHN≠0
//	────────► disabled ───────┬─► enabling ──────► ready ─────────────► shutting down
//	           ▲  ▲           │                     │ ▲                  │ settle ► flushCaches
//	           │  │ CC.EN=0   ▼ CC is wrong         │ │ CC.SHN=0         ▼ ► shutdownDone
//	           │  └───────── fatal                  │ └──────────────── shut down
//	           │                                    │
//	           └── settle ── disabling ◄────────────┘ CC.EN=0, also from the two on the right
//
//	any: the connection of its admin queue ends (queueDown ► destroy), or fatal ends that ► gone
//
//	state          in the code                    commands but Fabrics         goes on by itself when
//	────────────── ────────────────────────────── ──────────────────────────── ──────────────────────────────────
//	disabled       no CC.EN, no RDY               Command Sequence Error
//	enabling       CC.EN, no RDY                  likewise                     none of its own reaches volumes
//	ready          RDY, live                      executed, unless held
//	disabling      RDY, no CC.EN                  likewise; I/O queues end     none of its own reaches volumes
//	shutting down  SHST=01, not live              Command Sequence Error       likewise, nor one that its host left on
//	                                                                           another; then volumes are flushed
//	shut down      SHST=10, not live              likewise
//	fatal          CFS, not live                  likewise
//	gone           dead, not in Target's table    not answered: connections end
//
// configure (controller.go) takes CC, in the goroutine of Property Set; settle changes CSTS there, in
// a timer's, or in that of the last flush. CC.EN=1 takes a controller out of disabling too. Who calls
// fatal: the keep-alive timer, Preempt and Abort, the removal of a subsystem, and who takes a host's
// permission or secret away.
//
// # Ownership and concurrency
//
// Capsules of one queue are submitted from one goroutine at a time; everything else may be called from
// any. On the path of an I/O there are only atomics: the controller's readiness, the table of
// namespaces (replaced as a whole when it changes), and the counters of the queue and of the
// namespace, which are sharded by queue. Target.mu guards the tables of subsystems, controllers and
// queues; controller.mu what a controller's commands change; gate.mu who waits for a namespace, or has
// it; Queue.stop what a queue has kept. Subsystem.change comes first, then Target.mu, controller.mu,
// and one of the others; none is held while a Conn is called or a request submitted to a Volume.
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
//
// # Where to change what
//
//	to change                                                    look in
//	──────────────────────────────────────────────────────────── ─────────────────────────────────────────
//	the configuration and its limits; errors that callers get    config.go, errors.go
//	the target: tables, new connections, Close                   target.go
//	the interface to transports, and their Request               transport.go, buffers.go (memory they share
//	                                                             with volumes)
//	submission, states of a queue, flow control by SQHD          queue.go
//	memory, data and answers of a command                        request.go
//	too many connections: who gives way                          newcomers.go
//	Connect, Disconnect, properties                              connect.go, fabrics.go, property.go
//	DH-HMAC-CHAP: secrets, commands, protocol                    auth.go, auth_commands.go, auth_transaction.go
//	enable, reset, shutdown, fatal, CSTS                         controller.go, settle.go
//	keep-alive                                                   keepalive.go
//	a graceful stop of the whole target                          drain.go
//	subsystems; the hosts that may use them                      subsystem.go, subsystem_hosts.go
//	adding and removing namespaces                               subsystem_namespaces.go
//	a namespace: identifiers, size, users, removal               namespace.go
//	who may go to a namespace now: exclusive use, parking        gate.go
//	commands that a host left on a controller that ended         hold.go
//	attaching namespaces to controllers                          attachment.go
//	namespaces that hosts create                                 management.go (commands), managed.go (what is kept)
//	Read, Write, Write Zeroes, Flush                             io.go
//	Compare, Verify; fused Compare and Write                     compare.go, fused.go
//	Copy; Dataset Management (discard, trim, deallocate)         copy.go, dsm.go
//	Write Uncorrectable                                          uncorrectable.go
//	commands of several operations, one after the other          chain.go
//	Abort                                                        abort.go
//	volatile write cache, FUA; flushes that failed               cache.go, losses.go
//	statuses for errors of volumes                               volume_status.go
//	which admin commands there are, and their effects            admin.go
//	Identify; log pages, error log, SMART                        identify.go, logpage.go
//	which features there are; Get Features, Set Features         features.go, features_get.go, features_set.go
//	write protection                                             protection.go
//	asynchronous events (AEN)                                    aen.go
//	the Persistent Event log                                     persistent_log.go
//	Format; Sanitize                                             format.go, sanitize.go
//	reservations: rules, commands, notices, what is stored       reservation.go, reservation_commands.go,
//	                                                             reservation_notice.go, reservation_store.go
//	Preempt and Abort                                            preempt.go
//	discovery log, ports, referrals                              discovery.go, port.go, referral.go
//	ANA (multipath states)                                       ana.go
//	what outlives the target                                     store.go
//	goroutines beside the path of an I/O                         tasks.go
//	counters, latencies, statistics for metrics                  counters.go, stages.go, snapshot.go
//	log messages                                                 logging.go
package target
