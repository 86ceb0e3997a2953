// Package target is the NVMe over Fabrics target: subsystems, controllers, namespaces and queues, and the commands that
// run on them. It knows nothing about any transport. A transport binding makes a Queue for each of its connections
// (Target.NewQueue), passes capsules to it (Queue.Submit), and implements Conn, through which the engine (this package)
// moves data and sends responses.
//
// # How a command flows
//
// A Request belongs to the transport until Queue.Submit and again from Conn.Respond on; in between it belongs to the
// engine. Every request is responded to exactly once, whatever happens to the connection, the controller or the
// namespace meanwhile. A command runs to completion inside Submit if it has nothing to wait for. Otherwise it continues
// at "···►", in the goroutine that makes the call.
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
//	namespace: counts a user in Namespace.shards     gate.go      "                      none: Namespace.state is 0
//	  ├ closed, or held: park ···► unparked ► io     gate.go      the one that opens it  gate.mu
//	  ▼
//	blocks, transfer ► Conn.MapSGL                   io.go        "                      none
//	  ├ read of a volume in memory: Memory.View ► respond
//	  ├ write to a volume that lends memory: borrow ► pull
//	  ▼
//	withMemory ► Conn.Alloc                          request.go   "                      none
//	  ├ there is none: ···► Request.Resume           request.go   the one that frees it  none
//	  ▼
//	pull ► Conn.Pull                                 request.go   "                      none
//	  ├ the host's data: ···► Request.Pulled         request.go   the transport's        none
//	  ▼
//	submit; or run, for several operations           request.go,  "                      chains.mu in run
//	  ▼                                              chain.go
//	toVolume ► Volume.Submit                         hold.go      "                      none
//	  ├ ···► Complete of the volume's request        request.go   the volume's, or "     none
//	  ▼
//	respond: counts it, SQHD ► Conn.Respond          request.go   "                      errorLog.mu on an error
//	  ├ ···► Request.Sent: one user less, views end  request.go   the one that sent it   none: Namespace.state is 0
//
// The mark " stands for whichever goroutine has got there. A command that needs no data skips memory and pull; so does
// one whose data came in the capsule, if the volume takes it as it lies. The transport's goroutine is the connection's
// reader over TCP, and over RDMA the one that handles completions: with the software RNIC, mostly its engine. When a
// connection ends, the goroutine that ends it calls Resume and Pulled.
//
// I/O is zero-copy, in user space, where a volume in memory gives a view (Memory.View) for a read, or lends memory
// (Lender.Lend) for a write. An I/O allocates nothing: the volume's request is part of the Request, and continuations
// are functions chosen in advance. Admin commands build their pages on the heap.
//
// # Who waits for whom
//
// No goroutine of a transport or a volume waits. A command that has to wait is kept in a list; or, where a notification
// would cost every command something, a timer polls whether it can go on. Only the callers of RemoveNamespace,
// RemoveSubsystem, Drain and Close wait, and what runs in Subsystem.work.
//
//	what waits                           until                                 continued by              file
//	──────────────────────────────────── ───────────────────────────────────── ───────────────────────── ────────────────
//	a command that is parked             its namespace is open, and free of    next, letIn               gate.go, hold.go
//	                                     what its host left there
//	an owner: wants a namespace alone    no user and no earlier owner is left  put ► quiet, next         gate.go
//	removal of a namespace (remove)      no user and no owner is left          put, next ► tellDrained   namespace.go
//	a change of CSTS (settle)            its commands to volumes are done      looks (timer)             settle.go
//	commands that are held (hold)        what their host left on controllers   looks (timer)             hold.go
//	                                     or I/O queues that ended is done
//	a command that has waited, of a host its host is heard of, or its          postponed (timer)         keepalive.go
//	that is silent                       connection ends
//	Target.Drain                         no command is under way, no user      ticker                    drain.go
//	Disconnect                           the commands before it are answered   deleteQueue (timer)       fabrics.go
//	commands that a draining queue keeps the connection ends                   giveBack                  drain.go
//	Abort of a chain                     the volume has done its operation     endChain                  chain.go
//	the Compare of a fused pair          the next command of its queue comes   takeFused, dropFused      fused.go
//	an event request                     there is an event                     raise ► deliver           aen.go
//
// A chain is a command that takes several volume operations. Between any two of them it checks whether it is to end
// (chainAborted): because of an Abort or a preemption, or because its connection ends, its namespace is removed, or, if
// it is an admin command, its controller is disabled or shut down.
//
// In the usual terms: exclude quiesces, or freezes, a namespace for exclusive access, behind a barrier that stops later
// commands; hold fences a host's new commands off from its stale ones on a lost queue; settle waits for outstanding
// commands; Drain is a graceful shutdown, which quiesces all I/O queues. Admission control is by limits: newcomers.go
// for connections, newController for controllers. Flow control is by SQHD (Queue.complete), and backpressure comes from
// Conn.Alloc: a command without memory waits, and its data isn't fetched. There is no rate limiting of I/O and no other
// quality of service; only the log's rate is bounded.
//
// # States of a queue
//
//	     Connect               attach
//	new ─────────► connecting ────────┬───────────────────────► connected ◄──► fused: holds a Compare
//	 ▲                  │             └─► authenticating ─────►   │    │
//	 └──────────────────┘                                         │    │ quiesce, Disconnect, or
//	       refused                     a further authentication   │    ▼ the controller has ended
//	                                   has failed                 ▼   draining: begins no command
//	                                                            denied: Authentication Send and Receive only
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
//	in addition, for one controller: hold ► held ► unhold, letIn
//	any: refuseAll ► removed, for good
//
//	state       in the code                     a command that arrives   parked commands
//	─────────── ─────────────────────────────── ──────────────────────── ─────────────────────────────────────────
//	open        no nsClosed, no owners          goes on                  none, unless held
//	closing     nsClosed, owners, not running   is parked                wait
//	alone       nsClosed, running               is parked                wait
//	letting in  running, while an owner is left is parked until the next start over (unparked), before the next owner
//	                                            letting in               (engine.turn)
//	held        nsHeld, controller in gate.held is parked, if it is from wait for letIn
//	                                            such a controller
//	removed     nsRemoved                       Invalid Namespace        Invalid Namespace, by letIn
//
// These get a namespace alone: a fused Compare and Write (fused.go), Format (format.go), Set Features that
// write-protects it (protection.go), Preempt and Abort (preempt.go), and a sanitize operation (sanitize.go). None of
// them counts as a user while it waits. When its turn comes, each of the first three becomes one by Request.use,
// which ignores nsClosed; so do a Flush of all namespaces and the flush of a shutdown, by Namespace.get. withdraw removes
// owners that still wait: when they are aborted (abort.go), their connection ends (leave), their controller is disabled
// or shut down (withdrawFormats), or the namespace is removed (turnAway). A sanitize operation, which belongs to no
// command, stays.
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
//	any: the connection of its admin queue ends (queueDown ► destroy), or fatal closes it ► gone
//
//	state          in the code                    non-Fabrics commands         moves on by itself when
//	────────────── ────────────────────────────── ──────────────────────────── ──────────────────────────────────
//	disabled       no CC.EN, no RDY               Command Sequence Error
//	enabling       CC.EN, no RDY                  as disabled                  its commands to volumes are done
//	ready          RDY, live                      executed, unless held
//	disabling      RDY, no CC.EN                  as disabled; I/O queues end  its commands to volumes are done
//	shutting down  SHST=01, not live              as disabled                  likewise, and those its host left on
//	                                                                           another; then volumes are flushed
//	shut down      SHST=10, not live              as disabled
//	fatal          CFS, not live                  as disabled
//	gone           dead, not in Target's table    not answered: connections end
//
// configure (controller.go) takes a new CC, in the goroutine of Property Set; settle changes CSTS in that goroutine, in
// a timer's, or in that of the last flush. CC.EN=1 also takes a controller out of disabling. fatal is called by the
// keep-alive timer, by Preempt and Abort, when a subsystem is removed, and when a host's permission or secret is taken
// away.
//
// # Ownership and concurrency
//
// Capsules of one queue are submitted from one goroutine at a time; everything else may be called from any goroutine.
// The I/O path uses only atomics: the controller's readiness, the table of namespaces (replaced as a whole when it
// changes), and the counters of the queue and of the namespace, which are sharded by queue. Target.mu guards the tables
// of subsystems, controllers and queues; controller.mu guards what a controller's commands change; gate.mu guards the
// commands that wait for a namespace or have it alone; Queue.stop guards the commands that a queue has kept. The lock
// order is Subsystem.change or sanitizer.mu, Target.mu, controller.mu, then one of the others; none is held while a Conn
// is called or a request is submitted to a Volume.
//
// The engine has no goroutine of its own on the I/O path: keep-alive and Connect timers run on the runtime's, and an
// idle target does nothing. The mathematics of authentication runs in goroutines that live as long as it takes; saving,
// creating and erasing run in goroutines that end with their subsystem (Subsystem.work).
//
// # Authentication
//
// If Authentication demands it, a connected queue executes only Authentication Send and Receive until the host has
// proved that it knows its secret. The protocol is a type of its own, transaction, which knows only messages; queueAuth
// adds the queue, the timeout and the slots in which it is computed.
//
// # Time
//
// A command costs two readings of the monotonic clock, when it arrives and when it is answered. The first also tells
// the keep-alive timer that the host is alive, so that nothing has to be counted for that; a transport may share it
// among commands that arrived together (Request.Arrived).
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
//	too many connections: which one gives way                    newcomers.go
//	Connect, Disconnect, properties                              connect.go, fabrics.go, property.go
//	DH-HMAC-CHAP: secrets, commands, protocol                    auth.go, auth_commands.go, auth_transaction.go
//	whose authentication is computed next                        auth_turns.go
//	enable, reset, shutdown, fatal, CSTS                         controller.go, settle.go
//	keep-alive; commands of silent hosts that have waited        keepalive.go
//	a graceful stop of the whole target                          drain.go
//	subsystems; the hosts that may use them                      subsystem.go, subsystem_hosts.go
//	adding and removing namespaces                               subsystem_namespaces.go
//	a namespace: identifiers, size, users, removal               namespace.go
//	access to a namespace now: exclusive use, parking            gate.go
//	commands that a host left on a queue that ended              hold.go
//	attaching namespaces to controllers                          attachment.go
//	namespaces that hosts create                                 management.go (commands), managed.go (what is kept)
//	Read, Write, Write Zeroes, Flush                             io.go
//	Compare, Verify; fused Compare and Write                     compare.go, fused.go
//	Copy; Dataset Management (discard, trim, deallocate)         copy.go, dsm.go
//	Write Uncorrectable                                          uncorrectable.go
//	commands of several operations in sequence                   chain.go
//	Abort                                                        abort.go
//	volatile write cache, FUA; flushes that failed               cache.go, losses.go
//	statuses for errors of volumes                               volume_status.go
//	which admin commands there are, and their effects            admin.go
//	Identify; log pages, SMART; the error log                    identify.go, logpage.go, health.go, errorlog.go
//	which features there are; Get Features, Set Features         features.go, features_get.go, features_set.go
//	write protection                                             protection.go
//	asynchronous events (AEN)                                    aen.go
//	the Persistent Event log                                     persistent_log.go
//	Format                                                       format.go
//	Sanitize: the operation, and how it erases a namespace       sanitize.go, sanitize_erase.go
//	reservations: rules, commands, notices, what is stored       reservation.go, reservation_commands.go,
//	                                                             reservation_notice.go, reservation_store.go
//	Preempt and Abort                                            preempt.go
//	discovery log, ports, referrals                              discovery.go, port.go, referral.go
//	ANA (multipath states)                                       ana.go
//	state that outlives the target                               store.go
//	goroutines off the I/O path                                  tasks.go
//	counters, latencies, statistics for metrics                  counters.go, stages.go, snapshot.go
//	log messages                                                 logging.go
package target
