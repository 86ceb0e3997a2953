// Package rdma is the NVMe/RDMA transport binding, for targets (ListenTarget) and hosts
// (Transport), on any verbs provider.
//
// One reliable connection carries one NVMe queue pair. Command and response capsules travel
// as SEND and receive; data moves by RDMA READ and WRITE that the target posts against the
// R_Key in the command's SGL. The package knows the verbs vocabulary only: the caller hands
// in a verbs.ConnectionManager, of the software RNIC or of another provider.
//
// # Memory
//
// Data lies in arenas of internal/mem, registered chunk by chunk with each device, once. A
// host lends the target a memory window over the exact range of each command, which the
// target invalidates with its response; whatever a host sends from other memory is registered
// for the time of the command. Volumes that lie in memory are registered once and sent from
// in place: zero-copy, as a real RNIC has it, where a software one copies on arrival.
//
// # Flow control
//
// In place of credits a target posts as many receives as the queue is deep, and a host that obeys SQHD
// sends no more commands. A write's data is fetched (RDMA READ) when there is memory for it: commands
// that find none wait in turn, which is backpressure, and no peer holds more than its share
// (internal/mem's Pool). Admission control of connections is budget's: how much memory they may have
// for their buffers before their hosts have proved anything, and who gives way. Congestion is left to
// the provider.
//
// # Concurrency
//
// All connections on a device share a completion queue. Completions are handled in the provider's
// context, one connection at a time, and a command runs there to its end where the volume answers
// at once. Whoever has something to post while
// another goroutine posts on the same connection leaves it to that one; within a post,
// receives come first, then READs and WRITEs, then the SENDs of responses.
//
// A connection ends in a fixed order: the queue pair is disconnected and destroyed, so that no
// memory is touched any more; every request is given back; the buffers are freed; the engine
// or the host core is told.
//
// A target asks hosts that are silent for a sign of life, once a minute: who dies without a word, and
// has no keep-alive timeout, would stay connected for good.
package rdma
