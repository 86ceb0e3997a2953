//go:build !go1.26

package standstill

// Enter has nothing to do up to Go 1.25.
func Enter() {}

// Leave does nothing up to Go 1.25.
func Leave() {}

// Blocks does nothing up to Go 1.25.
func Blocks() {}
