// Package fuzzing runs the fuzz targets of this tree for millions of executions.
//
// # Why not Go's fuzzer alone
//
// Go's fuzzer is guided by coverage, and pays for it: processes that talk for each input, counters
// that are cleared and compared. It finds the inputs that matter within seconds to minutes. From
// then on a campaign makes inputs out of those that it found, within one process and without
// guidance, many times as fast.
//
// An F is a testing.F: `go test` runs the seeds and the entries of testdata/fuzz, and `go test -fuzz`
// runs Go's fuzzer, as ever. Where NVMEOF_FUZZ_EXECUTIONS is set, `go test -run FuzzX` is a campaign of as many
// executions of FuzzX; tests/campaign sets it, and keeps the books.
//
// # Worlds
//
// A state machine is more than its parser: what a packet does depends on those before it, and a
// connection costs far more to make than a packet to take. A target made by Worlds feeds inputs one
// after another into something that goes on living. In `go test` and under Go's fuzzer each world
// gets one input, so that each run repeats and coverage means something. In a campaign a world gets
// up to maxInputs inputs, fewer if it dies.
//
// # Findings
//
// What fails becomes an entry of testdata/fuzz, which `go test` runs from then on. For a world
// that is the whole sequence of inputs since it was made, written down before each is fed, so that it
// outlives a panic of any goroutine, a deadlock and a kill.
//
// # Concurrency
//
// A campaign of a target is one goroutine; several processes may run several targets, or one.
package fuzzing
