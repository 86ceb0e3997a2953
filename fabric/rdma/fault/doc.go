// Package fault injects the faults of bad networks into a software RNIC, without root: loss,
// delay, duplication, reordering, corruption and cuts.
//
//	cfg, err := fault.Parse("loss=1%,delay=200us±50us,seed=7")
//	nic, err := softrnic.Open(addr, softrnic.Config{Fault: &cfg})
//
// Programs use it like this: they pass a Config, and read what was done from RNIC.Faults. Wrap and Conn are for
// softrnic, since a Conn wraps a socket of internal/udp.
//
// The fate of a packet is decided as on the simulated network of the tests (internal/simnet), for each packet that the
// RNIC sends and for each that it receives: faults on one side are enough for both directions, and the peer may be any
// RNIC. Faults on both sides add up.
//
// # How it differs from a bad network
//
// Packets are sent one by one: when the kernel segments a train, only packets at its end may be missing, since each
// packet's ICRC covers its index in the train. Delays are exact to the time it takes to wake a thread, some 50 µs. A
// packet that is held back is kept in memory, of which each direction has 64 MiB; beyond that packets are lost.
//
// # Concurrency
//
// A Conn is a udp.Conn and as safe as one. It has two goroutines, which Close ends.
package fault
