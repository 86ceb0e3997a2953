// Package multipath makes one subsystem of several paths: connections to controllers of the same
// NVM subsystem, over any transports, each of which is made again when it is lost. What is read
// and written through it goes on as long as one of them lives.
//
// # Layers
//
// [Connect] makes a [Subsystem] of paths, each of which is a host.Config, and
// [Subsystem.Namespace] opens a [Namespace] that all of them lead to: the same type as that of
// nvme/host for synchronous use, and a [Namespace.Lane] for each user that submits requests by
// itself. One path alone makes a connection that survives the restart of its target.
//
// # States of a path
//
// A path is connecting until it is live. When its controller is lost it is reconnecting, with
// pauses that double from 100 ms to Config.ReconnectDelay. It is given up when that took longer
// than Config.ControllerLoss, and at once when the target refuses it for good (a status with Do
// Not Retry). A path joins a namespace only when it finds the same one there: equal identifiers,
// equal blocks, and no smaller transfers. Where it can't find out for a reason that may pass, it tries
// again with the same pauses; for a namespace that isn't there it waits for the controller's notice.
//
// # Which path a request takes
//
// Those whose ANA state is optimized, by the [Policy]; where there are none, those that are
// non-optimized. A path in another state takes none: the ANA log is read again when the
// controller notifies of a change and when a command ends with an ANA status. It tells which group a
// namespace is in by now, and the state of each. A path that stays in the change state longer than the
// controller says that it takes (ANATT) is connected anew.
//
// # What happens to requests
//
// A request that a lost path cut short takes another path, or the same when it is back, five times
// for each path at most: then it ends with a [CutShortError], because it may be what ends the
// controllers. One that no controller was sent doesn't count, nor is it held for executed. One
// that ended with a path related status without Do Not Retry takes another path; so does, five times
// at most, one that a controller answered because it isn't ready any more (Command Sequence Error).
// Other statuses without Do Not Retry are tried again five times, after the time that the controller
// asks for (CRD). Where no path can take requests, they wait: for Config.FastIOFail if that is set,
// else for Config.ControllerLoss, and then end with a [NoPathError]; so they do at once when no path
// can come back. A request that is answered with ANA statuses for that long, by paths whose log says
// that they take it, ends likewise.
//
// A command that a lost path cut short may have been executed, or may yet be, by a target that still
// lives; one that was answered with an error, in part. It is sent again only where that gives the
// same result: reads, writes, flushes, Write Zeroes, Dataset Management, Compare, Verify and Write
// Uncorrectable. Reservations and Copy end with the error instead, unless that is an ANA status,
// which says that nothing was done. Fused commands always do: one half alone is of no use.
//
// # Concurrency
//
// Everything may be called from any goroutine. Each path has one goroutine; a request has none,
// and nothing is allocated for it as long as no path fails.
package multipath
