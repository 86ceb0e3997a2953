package cli

import (
	"context"
	"time"
)

// Leaving calls do, which may wait forever for another program at the other end of a pipe, and abandons it when ctx has
// been over for grace, as the whole program is about to end. The error is then that of ctx.
func Leaving[T any](ctx context.Context, grace time.Duration, do func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := do()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-time.After(grace):
		var none T
		return none, ctx.Err()
	}
}
