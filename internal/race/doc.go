// Package race tells tests whether the race detector watches. It slows them tenfold, allocates by itself, and its own
// code doesn't survive faults of the memory that it looks at.
package race
