// Package multipath combines several paths into one subsystem: connections to controllers of the same NVM
// subsystem, over any transports, each of which is re-established when it is lost. I/O continues as long as one of
// them lives.
//
// # Layers
//
// [Connect] returns a [Subsystem] of paths, each of which is described by a host.Config, and [Subsystem.Namespace]
// opens a [Namespace] that all of them lead to: for synchronous use it has the type of nvme/host, and it has a
// [Namespace.Lane] for each user that submits requests itself. A single path makes a connection that survives a
// restart of its target.
//
// # States of a path
//
// A path is connecting until it is live. When its controller is lost it is reconnecting, with pauses that double
// from 100 ms to Config.ReconnectDelay. It is given up when that has taken longer than Config.ControllerLoss, and
// at once if the target refuses it for good (a status with Do Not Retry). A path joins a namespace only if it finds
// the same one there: equal identifiers, equal block sizes, and no smaller transfers. If it can't find out for a
// reason that may pass, it retries with the same pauses; if the namespace isn't there, it waits for the
// controller's notice.
//
// Other secrets are given to a path by [Subsystem.AddPath], for when it connects again, and to its present controller
// by Authenticate of that (see [Subsystem.Controllers]).
//
// # Which path a request takes
//
// A request takes a path whose ANA state is optimized, chosen by the [Policy], or, if there is none, one that is
// non-optimized. A path in any other state takes no requests: the ANA log is read again when the controller reports
// a change and when a command ends with an ANA status. The log says which group a namespace is in now, and the
// state of each group. A path that stays in the change state longer than the controller says that it takes (ANATT)
// is reconnected.
//
// # What happens to requests
//
// A request that a lost path cut short takes another path, or the same one when it is back, at most five times for
// each path: then it ends with a [CutShortError], because it may be what crashes the controllers. A request that
// was never sent to the controller doesn't count, and isn't assumed to have been executed. A request that ended
// with a path related status without Do Not Retry takes another path; so does, at most five times, one that a
// controller answered because it was no longer ready (Command Sequence Error), or because this host failed to
// authenticate itself again (Operation Denied, Authentication Required). After other statuses without Do Not Retry a
// request is retried five times, after the delay that the controller asks for (CRD). If no path can take requests,
// they wait for Config.ControllerLoss, but only for Config.FastIOFail, if that is set, while no path is live. Then
// they end with a [NoPathError]; they end at once if no path can come back. Live paths always get ten seconds, or as
// long as a change of ANA states takes if that is longer (ANATT), so that it fails nothing. A request ends in the same
// way if it is answered with ANA statuses for as long as it would wait for a live path by paths whose log says that
// they take it.
//
// A command that a lost path cut short may have been executed, or may be executed later by a target that is still
// alive; one that was answered with an error may have been executed in part. It is sent again only if that gives
// the same result: reads, writes, flushes, Write Zeroes, Dataset Management, Compare, Verify and Write
// Uncorrectable. Reservation commands and Copy end with the error instead, unless that is an ANA status, which says
// that nothing was done. Fused commands always do: one half alone is of no use.
//
// # Concurrency
//
// Everything may be called from any goroutine. Each path has one goroutine, and a lost controller one until its
// requests have ended; a request has none, and nothing is allocated for it as long as no path fails.
package multipath
