// Package neighbor finds programs of this kind, on the same host and of the same user, that have a
// socket with which one is exchanged, and shares memory with them, so that datagrams between the two
// needn't go through the system.
//
// # How two find each other
//
// A Table belongs to a UDP socket and listens at a Unix socket (SOCK_SEQPACKET) whose abstract name holds the
// UDP address: abstract names are the network namespace's, as addresses are. Of two Tables the one with the lower
// address connects, when something is to be sent to the other one, and sends its address along with a descriptor of
// memory (memfd_create) for two rings (package ring), one for each direction; the other one answers, and from then
// on both send through the rings. The connection stays: when it ends, so does the Link, and what was put before can
// still be taken. Who isn't answered tries again after a second, and then after twice as long each time, up to a
// minute. Who has written what it can't have meant isn't linked with for a minute.
//
// An address may move to another host while the program that had it runs on. The other's address has to be one of this
// host when a Link begins, and when a bell (below) woke nobody.
//
// # Trust
//
// Either asks the system for the other's user (SO_PEERCRED) and shares memory with its own alone: processes of one user
// can mostly read and write each other's memory anyway (ptrace). Where a user namespace doesn't know every user, the one
// as whom it shows those shares with nobody. The memory is sealed against shrinking, and all there from the start.
// Another user may take the name: then Listen fails.
//
// # Waking
//
// A Link doesn't wake a peer that sleeps: Bell says when whoever puts is to do it, by a datagram.
//
// # Concurrency
//
// One goroutine at a time calls Take, Sleep and Wake; any number call Link, Put and Bell. Memory is unmapped once
// nobody can reach it: the garbage collector finds out. A Table has one goroutine, and one more for each Link.
package neighbor
