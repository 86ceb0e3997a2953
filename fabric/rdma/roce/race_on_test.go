//go:build race

package roce

// raceBuild has long simulations run shorter under the race detector, which slows them tenfold.
const raceBuild = true
