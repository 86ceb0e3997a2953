package rdma_test

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/internal/fabrictest"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestHeldUp: a write that the goroutine that receives packets executes for a volume, and that hangs, stops nothing
// else on the same connection, and completes normally.
func TestHeldUp(t *testing.T) {
	v := fabrictest.NewAttendedVolume(memory(t, 16<<20))
	r := newRig(t, rdma.TargetConfig{}, v)
	c := r.connect(t, nil)
	b, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	fabrictest.HeldUp(t, v, func(op nvme.Opcode, done func(nvme.Status)) {
		req := &host.Request{Data: b, Done: func(r *host.Request) { done(r.CQE.Status()) }}
		req.Cmd.SetIO(op, 1, 0, 8, 0)
		c.Queues()[0].SubmitOne(req)
	})
	c.Free(b)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
