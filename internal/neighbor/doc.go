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
// on both send through the rings. The connection stays: when it ends, so does the Link. Who isn't answered tries again
// after a second, and then after twice as long each time, up to a minute.
//
// # Trust
//
// Either asks the system for the other's user (SO_PEERCRED) and shares memory with its own alone: processes of one user
// can read and write each other's memory anyway (ptrace). The memory is sealed against shrinking.
//
// # Concurrency
//
// One goroutine at a time calls Take, Sleep and Wake; any number call Link, Put and Bell. Memory is unmapped once
// nobody can reach it: the garbage collector finds out. A Table has one goroutine, and one more for each Link.
package neighbor
