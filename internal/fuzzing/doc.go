// Package fuzzing runs the fuzz targets of this tree for millions of executions.
//
// # Why not Go's fuzzer alone
//
// Go's fuzzer is guided by coverage, and pays for it: its processes exchange messages for each input, and coverage
// counters are cleared and compared. It finds the inputs that matter within seconds to minutes. From then on a campaign
// mutates those inputs, within one process and without guidance, many times as fast.
//
// An F is a testing.F: `go test` runs the seeds and the entries of testdata/fuzz, and `go test -fuzz` runs Go's fuzzer,
// as usual. If NVMEOF_FUZZ_EXECUTIONS is set, `go test -run FuzzX` is a campaign of that many executions of FuzzX;
// tests/campaign sets it, and records the results.
//
// # Worlds
//
// A state machine is more than its parser: what a packet does depends on the packets before it, and a connection costs
// far more to set up than a packet to process. A target made by Worlds feeds inputs one after another into something
// long-lived, a world. In `go test` and under Go's fuzzer each world gets one input, so that each run is repeatable and
// coverage is meaningful. In a campaign a world gets up to maxInputs inputs, fewer if it dies.
//
// # Findings
//
// An input that fails becomes an entry of testdata/fuzz, which `go test` runs from then on. For a world the entry is
// the whole sequence of inputs since it was made. Each input is recorded before it is fed, so that the record survives
// a panic in any goroutine, a deadlock and a kill.
//
// # Seeds
//
// Tests that make up their own work, from a seed that a failure prints, ask Seeded and Number what the environment says
// about it.
//
// # Concurrency
//
// A campaign of a target uses one goroutine; several processes may run several targets, or the same one.
package fuzzing
