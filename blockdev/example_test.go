package blockdev_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// A request is submitted, and its Complete is called when it has ended, perhaps before Submit returns. Err then says
// what failed, as one of this package's kinds.
func ExampleOpen() {
	v, err := blockdev.Open("mem:1MiB", blockdev.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()

	do := func(op blockdev.Op, b []byte, off int64) error {
		done := make(chan error, 1)
		v.Submit(&blockdev.Request{
			Op: op, Offset: off, Length: int64(len(b)), Bufs: [][]byte{b},
			Complete: func(r *blockdev.Request) { done <- r.Err },
		})
		return <-done
	}
	block := make([]byte, 4096)
	copy(block, "hello")
	if err := do(blockdev.OpWrite, block, 8192); err != nil {
		log.Fatal(err)
	}
	clear(block)
	if err := do(blockdev.OpRead, block, 8192); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", block[:5])
	fmt.Println(errors.Is(do(blockdev.OpRead, block, 1<<20), blockdev.ErrRange))
	// Output:
	// hello
	// true
}
