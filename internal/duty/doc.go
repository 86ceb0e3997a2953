// Package duty lets whoever waits for packets do the work of others that may block: to wake a
// goroutine of one's own for each piece of it costs more than the work itself.
//
// # Use
//
// An [Attendant] stands for a goroutine that receives packets. It is on duty from Arrive until
// Leave, which it calls before it sleeps, and calls Work whenever it has handled what came and work
// is [Offered]. A task that is done may be offered anew for what is left of it. Who has work that
// may block, such as a write to a file, gives it away by [Offer], and does it by other means where
// nobody is on duty.
//
// Who receives packets without an attendant says so by [AddReceiver]. In a program that has either, work that may block
// is done by none who calls for it ([HasReceivers]).
//
// Who gets answers from the kernel in memory that can be looked at, such as those of asynchronous
// I/O, adds a [Ring]. Those on duty look at it with each look for packets (Look), and nobody need be
// woken for an answer. Who counts on that asks [Attended] first.
//
// # What is promised
//
// A task is done or declined soon: who is on duty does it, the last to go off duty declines what is
// left, and so does a watch that finds that nobody came. No task holds up those who wait for
// packets: where one takes longer than Patience or two, another goroutine takes the place of the
// attendant's, which ends when the task does. The watch also tells rings at which nobody looks,
// though answers were to come.
//
// # Concurrency
//
// Arrive, Leave and Work belong to the goroutine that an attendant stands for, and to the one that
// takes its place after it. Everything else may be called by anybody. Tasks are done, and rings
// looked at, without locks of this package held; Decline and Left may be called with the watch's.
//
// The watch is a timer that runs only while work is done or answers are to come.
package duty
