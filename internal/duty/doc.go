// Package duty lets goroutines that wait for packets do the work of others that may block: waking a goroutine for each
// piece of it costs more than the work itself.
//
// # Use
//
// An [Attendant] stands for a goroutine that receives packets. It is on duty from Arrive until Leave, which it calls
// before it sleeps, and calls Work whenever it has handled what arrived and tasks are [Offered]. A goroutine that has
// work that may block, such as a write to a file, hands it over by [Offer], and does it by other means if nobody is on
// duty. A task that is done may be offered again for what is left of it.
//
// A goroutine that receives packets without an attendant calls [AddReceiver]. In a program that has either, work that
// may block is never done by the goroutine that asks for it ([HasReceivers]).
//
// A user that gets answers from the kernel in memory that can be polled, such as those of asynchronous I/O, adds a
// [Ring]. Attendants on duty look at it each time they look for packets (Look), so that nobody needs to be woken for an
// answer. A user that counts on that calls [Attended] first.
//
// # What is promised
//
// A task is done or declined soon: an attendant on duty does it; the last one to go off duty declines what is left, and
// so does a watch that finds that nobody took it. No task holds up those who wait for packets: if one takes longer than
// once or twice Patience, another goroutine takes the attendant's place, and the original one ends when the task does.
// The watch also tells rings that nobody looks at them though answers are pending.
//
// # Concurrency
//
// Arrive, Leave and Work may only be called by the goroutine that an attendant stands for, and by the one that takes
// its place after it. Everything else may be called by any goroutine. Tasks are done, and rings looked at, without
// locks of this package held; Decline and Left may be called with the watch's lock held.
//
// The watch is a timer that runs only while tasks are being done or answers are pending.
package duty
