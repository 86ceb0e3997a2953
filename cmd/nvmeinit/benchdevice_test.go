package main

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// submitted notes the last request.
type submitted struct{ last *host.Request }

func (s *submitted) SubmitOne(r *host.Request) { s.last = r }

// TestBenchCommands: the command of each operation of a load, when its request is used again too.
func TestBenchCommands(t *testing.T) {
	var s submitted
	q := &benchQueue{q: &s, nsid: 7, block: 512}
	io := &loadgen.IO{}
	buf := make([]byte, 4096)
	for _, c := range []struct {
		op     loadgen.Op
		fua    bool
		buf    []byte
		opcode nvme.Opcode
	}{
		{loadgen.Read, false, buf, nvme.OpRead},
		{loadgen.Write, true, buf, nvme.OpWrite},
		{loadgen.Write, false, buf, nvme.OpWrite},
		{loadgen.Trim, false, nil, nvme.OpDSM},
		{loadgen.Flush, false, nil, nvme.OpFlush},
	} {
		io.Op, io.FUA, io.Offset, io.Length, io.Buf = c.op, c.fua, 1<<20, 4096, c.buf
		q.Submit(io)
		cmd, data := &s.last.Cmd, len(c.buf)
		if c.op == loadgen.Trim {
			data = nvme.DSMRangeSize
		}
		if cmd.Opcode() != c.opcode || cmd.NSID() != 7 || len(s.last.Data) != data {
			t.Errorf("%v: %s of namespace %d, %d bytes", c.op, cmd.Opcode().IOName(), cmd.NSID(), len(s.last.Data))
		}
		if c.buf != nil && (cmd.SLBA() != 2048 || cmd.Blocks() != 8 || (cmd.IOControl() == nvme.ControlFUA) != c.fua) {
			t.Errorf("%v: %d blocks from %d on, control %#x", c.op, cmd.Blocks(), cmd.SLBA(), cmd.IOControl())
		}
	}
}
