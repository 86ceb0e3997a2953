package tests

import (
	"bytes"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestCompareAndWrite sends fused pairs over every transport, with data in the capsule and
// outside it.
func TestCompareAndWrite(t *testing.T) {
	noLeaks(t)
	remote := servePair(t, "mem:16MiB", blockdev.Options{BlockSize: 512})
	for _, path := range paths {
		h := dialPair(t, remote, path)
		ns := h.namespace(t, 1)
		for _, size := range []int{512, 4096, 128 << 10} {
			old, data := make([]byte, size), bytes.Repeat([]byte{byte(size>>8) | 1}, size)
			if _, err := ns.WriteAt(t.Context(), old, 0); err != nil {
				t.Fatal(err)
			}
			if a, b := sendPair(t, h, old, data); a != 0 || b != 0 {
				t.Errorf("%s, %d bytes: statuses %v and %v", path, size, a, b)
			}
			if a, b := sendPair(t, h, old, old); a.Code() != nvme.StatusCompareFailure || b.Code() != nvme.StatusAbortFailedFused {
				t.Errorf("%s, %d bytes: statuses %v and %v of a pair that doesn't match", path, size, a, b)
			}
			got := make([]byte, size)
			if _, err := ns.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s, %d bytes: the pair didn't write (%v)", path, size, err)
			}
		}
		h.close(t)
	}
}

// sendPair sends a Compare and Write of block 0 on.
func sendPair(t *testing.T, h *hostSide, old, data []byte) (compared, written nvme.Status) {
	t.Helper()
	ended := make(chan error, 2)
	done := func(r *host.Request) { ended <- r.Err }
	pair := [2]host.Request{{Data: old, Done: done}, {Data: data, Done: done}}
	blocks := uint32(len(data) / 512)
	pair[0].Cmd.SetIO(nvme.OpCompare, 1, 0, blocks, 0)
	pair[0].Cmd.SetFuse(nvme.FuseFirst)
	pair[1].Cmd.SetIO(nvme.OpWrite, 1, 0, blocks, 0)
	pair[1].Cmd.SetFuse(nvme.FuseSecond)
	h.Queues()[0].Submit([]*host.Request{&pair[0], &pair[1]})
	for range pair {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	return pair[0].Status(), pair[1].Status()
}
