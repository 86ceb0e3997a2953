// Package fault injects the faults of bad networks into a software RNIC, without root: loss,
// delay, duplication, reordering, corruption and cuts.
//
//	cfg, err := fault.Parse("loss=1%,delay=200us±50us,seed=7")
//	nic, err := softrnic.Open(addr, softrnic.Config{Fault: &cfg})
//
// That is the way in for programs: they give a Config, and read what was done by RNIC.Faults. Wrap and
// Conn are for softrnic, since a Conn stands before a socket of internal/udp.
//
// What becomes of a packet is decided as on the simulated network of the tests
// (internal/simnet), for each packet that the RNIC sends and for each that it receives: faults on
// one side are enough for both ways, and the peer may be any RNIC. Faults on both sides add up.
//
// # What is different from a bad network
//
// Packets leave one by one: a train that the kernel cuts has lost packets at its end only, since
// each packet's ICRC covers its place in the train. Delays are exact to what it takes to wake a
// thread, some 50 µs. A packet that is held back lies in memory, of which a direction has 64 MiB;
// beyond that packets are lost.
//
// # Concurrency
//
// A Conn is a udp.Conn and as safe as one. It has two goroutines, which Close ends.
package fault
