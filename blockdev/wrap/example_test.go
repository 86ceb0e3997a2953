package wrap_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

// A volume whose third block can't be read, as on a failing disk. The kinds of other packages, such as persist.Kind(),
// can be given to Kinds, so that they can be wrapped too.
func ExampleKinds() {
	v, err := blockdev.Open("fail:read@2:mem:1MiB", blockdev.Options{BlockSize: 4096}, wrap.Kinds()...)
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	for block := range int64(4) {
		done := make(chan error, 1)
		buf := make([]byte, 4096)
		v.Submit(&blockdev.Request{
			Op: blockdev.OpRead, Offset: block * 4096, Length: 4096, Bufs: [][]byte{buf},
			Complete: func(r *blockdev.Request) { done <- r.Err },
		})
		err := <-done
		fmt.Println("block", block, "has a medium error:", errors.Is(err, blockdev.ErrMedium))
	}
	// Output:
	// block 0 has a medium error: false
	// block 1 has a medium error: false
	// block 2 has a medium error: true
	// block 3 has a medium error: false
}
