// Package simulation tests the whole system at once: several hosts of several paths each, and one or two targets that
// share volumes, in one process, on a simulated network and in virtual time. An hour of faults takes a minute.
//
// # A world
//
// A seed draws a world: how many targets, ports, hosts, addresses and volumes there are, which ports are of RDMA and
// which of NVMe/TCP, the hosts' options, who uses them, and what goes wrong. Everything between the users of
// nvme/multipath and the volumes is what the programs run, down to the packets of the RNICs (fabric/rdma/roce and cm)
// and the calls on the sockets of NVMe/TCP (fabric/tcp/socket), which internal/simnet carries; testing/synctest is the
// clock. Connections of NVMe/TCP never poll before they sleep (BusyPoll): virtual time passes only while everybody
// sleeps.
//
// In each of several rounds, clients read, write and swap blocks (fused Compare and Write), a keeper has hosts take and
// preempt reservations, and a nemesis cuts, isolates, degrades and holds up parts of the network, alters what digests
// cover and TCP's checksums don't catch, freezes volumes and makes them fail, changes ANA states, secrets, the hosts
// that are let in, the size and the presence of namespaces, ends controllers, and stops and restarts targets. Then
// everything is repaired.
//
// # What is checked
//
//   - Each block is a register that is linearizable under all that hosts do, with the exceptions that NVMe makes
//     (register_test.go). A write that failed may take effect until nothing of it can be left, which is so at the end of
//     a round; a write of a host whose commands were aborted by Preempt and Abort may not.
//   - Nobody does what a reservation denies him, nor is anybody refused a change of reservations that he may make.
//   - An operation with a timeout ends within what nvme/host promises, and every operation soon after all is repaired.
//   - Then every path is live again, each host reads everything, and nothing is left over: no request on either side,
//     no connection or controller that no path has, no use of a namespace or volume. The counters add up.
//   - All closes in the end, and no goroutine is left, or the bubble of synctest would never end.
//
// # What isn't
//
// A write may be late if the path that it was sent by is lost, the target hasn't noticed, and the volume, or the
// network, holds it back for longer than the host takes to send it again (docs/multipath.md). So the network holds
// nothing back for that long (TCP does while it is cut, but a host that gives up a connection takes that back), and
// most worlds have volumes that execute requests in order. In the others each host has one path, through a good
// network: there the target knows what was lost, and keeps a host's new commands away from those that it left behind.
// Only there could anybody tell whether Preempt and Abort waits for the commands that it aborts, so there hosts are
// preempted while they write.
//
// # One mishap at a time
//
// TestEachPacket has no nemesis: one host and one target say all that they have to say to each other, and the network is
// cut, or the host's calls are cancelled, when a certain packet is sent.
//
// # Repeating a run
//
// NVMEOF_SIMULATION_SEED repeats a seed. It draws the same world, but not always the same order of events: goroutines of
// one moment run in any order, so that a rare failure may take many runs of its seed. NVMEOF_SIMULATION tries new seeds
// (make simulate).
package simulation
