// Package neighbor finds other programs that use this package, on the same host and of the same user, with whose UDP
// sockets datagrams are exchanged, and shares memory with them so that those datagrams needn't go through the kernel.
//
// # How two find each other
//
// A Table belongs to a UDP socket and listens at a Unix socket (SOCK_SEQPACKET) whose abstract name contains the UDP
// address: abstract names belong to the network namespace, as addresses do. Of two Tables the one with the lower
// address connects, when it has something to send to the other. It sends its address along with the descriptor of
// memory (memfd_create) for two rings (package ring), one for each direction; the other one answers, and from then on
// both send through the rings. The connection stays open: when it ends, so does the Link, and what was put before can
// still be taken. A Table that gets no answer tries again after a second, and then after twice as long each time, up to
// a minute. A peer that has written something invalid is not linked with for a minute.
//
// An address may move to another host while the program that had it runs on. So the peer's address is checked to be one
// of this host when a Link begins, and when a bell (see below) hasn't woken the peer.
//
// # Trust
//
// Either side asks the kernel for the other's user (SO_PEERCRED) and shares memory only with the same user: processes
// of one user can mostly read and write each other's memory anyway (ptrace). In a user namespace that doesn't map every
// user, programs that run as the overflow user, as which it shows the others, share with nobody. The memory is sealed
// against shrinking, and fully allocated from the start. Another user may take the abstract name: then Listen fails.
//
// # Waking
//
// A Link doesn't wake a sleeping peer itself: Bell tells the sender when to do so, by a datagram.
//
// # Concurrency
//
// One goroutine at a time may call Take, Sleep and Wake; any number may call Link, Put and Bell, and Begin, which keeps
// others from putting until End. Memory is unmapped once it is unreachable, which the garbage collector finds out. A
// Table has one goroutine, and one more for each Link and each attempt to make one.
package neighbor
