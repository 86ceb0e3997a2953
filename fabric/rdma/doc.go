// Package rdma is the NVMe/RDMA transport binding, for targets (ListenTarget) and hosts (Transport), on any verbs
// provider.
//
// One reliable connection carries one NVMe queue pair. Command and response capsules are sent with SEND; data moves by
// RDMA READ and WRITE, which the target posts with the R_Key in the command's SGL. The package knows only the verbs
// vocabulary: the caller supplies a verbs.ConnectionManager, that of the software RNIC or of another provider. All it
// needs of a device beyond that are work requests that take two pieces of memory, a command and its data.
//
// # Memory
//
// Data lies in arenas of internal/mem, whose chunks are registered once with each device. A host lends the target a
// memory window over the exact range of each command, which the target invalidates with its response. Other memory, and
// all memory if the device has no windows, is registered for the duration of the command. Volumes that lie in memory are
// registered once and sent from in place: that is zero-copy with a real RNIC, while a software RNIC copies on arrival.
//
// # Flow control
//
// Instead of granting credits, a target posts as many receives as the queue is deep, and a host that obeys SQHD sends
// no more commands. A write's data is fetched (RDMA READ) when there is memory for it: commands that find none wait in
// turn, which is backpressure, and no peer holds more than its share (internal/mem's Pool). Admission control of
// connections is the task of budget: it decides how much memory they may have for their buffers before their hosts have
// proved anything, and which of them give way. Congestion control is left to the provider.
//
// # Concurrency
//
// Connections on a device share completion queues. Completions are handled in the provider's context, one connection at
// a time, and a command runs to completion there if the volume answers at once. A goroutine that has something to post
// while another one posts on the same connection leaves it to the other one; within a post, receives come first, then
// READs and WRITEs, then the SENDs of responses.
//
// A connection ends in a fixed order: the queue pair is disconnected and destroyed, so that no memory is accessed any
// more; every request is given back; the buffers are freed; the engine or the host core is told.
//
// A target probes silent hosts once a minute: otherwise a host that dies silently, and has no keep-alive timeout, would
// stay connected forever.
package rdma
