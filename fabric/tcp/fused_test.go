package tcp

import (
	"bytes"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestFusedMemory: however many fused pairs arrive at once, and however little memory there is for their data, none waits
// for memory that the others hold: each is answered, and so are the commands between them.
func TestFusedMemory(t *testing.T) {
	const size, pairs = 64 << 10, 8
	tt := newTestTarget(t, TargetConfig{InCapsule: -1, MaxTransfer: size, Memory: 1 << 20, PeerMemory: size})
	p := newPair(t, tt.Addr(), clientOptions{})
	zero, one := make([]byte, size), bytes.Repeat([]byte{1}, size)
	var all []*host.Request
	ended := make(chan struct{}, 3*pairs)
	add := func(op nvme.Opcode, f nvme.Fuse, offset int, data []byte) {
		cmd := ioCommand(op, offset, size)
		cmd.SetFuse(f)
		all = append(all, &host.Request{Cmd: cmd, Data: data, Done: func(*host.Request) { ended <- struct{}{} }})
	}
	for i := range pairs {
		add(nvme.OpCompare, nvme.FuseFirst, i*size, zero)
		add(nvme.OpWrite, nvme.FuseSecond, i*size, one)
		add(nvme.OpWrite, nvme.FuseNone, (pairs+i)*size, one)
	}
	p.io.submit(all...)
	for range all {
		if _, ok := soon.Receive(ended); !ok {
			t.Fatal("a command was not answered")
		}
	}
	for i, r := range all {
		if err := r.Check(); err != nil {
			t.Errorf("command %d: %v", i, err)
		}
	}
	got := make([]byte, size)
	for i := range 2 * pairs {
		p.io.must(ioCommand(nvme.OpRead, i*size, size), got)
		if !bytes.Equal(got, one) {
			t.Errorf("what command %d wrote isn't there", i)
		}
	}
}
