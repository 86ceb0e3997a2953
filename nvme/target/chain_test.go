package target

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestNothingAfterTheConnection: when a connection is ending, its host sends what wasn't answered by another one, and
// writes again. Operations of a chain that have not begun by then don't happen any more, nor do commands that still
// wait for the namespace (NVMe base, "Controller Level Reset": outstanding commands are stopped).
func TestNothingAfterTheConnection(t *testing.T) {
	one := bytes.Repeat([]byte{1}, 64<<10)
	ranges := nvme.DSMRange{SLBA: 0, Blocks: 8}.AppendTo(nil)
	ranges = nvme.DSMRange{SLBA: 64, Blocks: 8}.AppendTo(ranges)
	pair := func(s *session) {
		s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 64, 1), one[:512])
		s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 64, 1), make([]byte, 512))
	}
	copied, source := copyCommand(64, 0, nvme.CopyRange{SLBA: 0, Blocks: 64})
	for name, c := range map[string]struct {
		start func(s *session)
		alone bool // an owner has the namespace alone; otherwise the first operation is under way
	}{
		"Copy": {start: func(s *session) { s.io.start(copied, source) }},
		"Dataset Management": {start: func(s *session) {
			s.io.start(command(func(c *nvme.Command) { c.SetDSM(1, 2, nvme.DSMDeallocate) }), ranges)
		}},
		"Format":                       {alone: true, start: func(s *session) { s.admin.start(formatCommand(1, 0, nvme.EraseUser), nil) }},
		"Compare and Write":            {start: pair},
		"Compare and Write that waits": {start: pair, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			v := newTestVolume(1<<20, 512)
			copy(v.data[64*512:], one)
			tg := newTarget(t, v)
			s := connect(t, tg, testNQN)
			ns := tg.Subsystem(testNQN).namespace(1)
			if c.alone {
				ns.exclude(nil, func() {})
				c.start(s)
			} else {
				v.setHold(true)
				c.start(s)
				<-v.arrived
			}
			s.io.q.Closing(nil)
			s.admin.q.Closing(nil)
			if c.alone {
				ns.include()
			} else {
				v.release()
			}
			s.close()
			if !bytes.Equal(v.data[64*512:][:len(one)], one) {
				t.Error("blocks were written when the connection had ended")
			}
		})
	}
}

// TestNoWriteAfterTheConnection: data that arrives when the connection is ending isn't written.
func TestNoWriteAfterTheConnection(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	s := connect(t, newTarget(t, v), testNQN)
	s.io.holdPull = true
	fr := s.io.start(ioCommand(nvme.OpWrite, 0, 8, 0), bytes.Repeat([]byte{1}, 4096))
	s.io.mu.Lock()
	s.io.pulling = nil
	s.io.mu.Unlock()
	s.io.q.Closing(nil)
	fr.Pulled(nil)
	s.close()
	if ops := v.ops(); len(ops) != 0 {
		t.Errorf("the volume had %v", ops)
	}
}

// TestRemovedWhileCommandGoesOn: the removal of a namespace doesn't wait for operations that have not begun.
func TestRemovedWhileCommandGoesOn(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	sub := tg.Subsystem(testNQN)
	ns := sub.namespace(1)
	v.setHold(true)
	long := s.io.start(ioCommand(nvme.OpVerify, 0, 2048, 0), nil)
	flush := s.io.start(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil)
	<-v.arrived
	<-v.arrived
	removed := make(chan error)
	go func() { removed <- sub.RemoveNamespace(1) }()
	if !soon.Until(func() bool { return ns.state.Load()&nsRemoved != 0 }) {
		t.Fatal("not removed")
	}
	v.release()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if st := long.wait().Status() &^ nvme.StatusMore; st != nvme.StatusInvalidNamespace|dnr {
		t.Errorf("status %#x", uint16(st))
	}
	if st := flush.wait().Status(); st != nvme.StatusSuccess { // of all that are there
		t.Errorf("Flush: status %#x", uint16(st))
	}
	if n := len(v.ops()); n != 2 {
		t.Errorf("the volume was told %d times, want twice", n)
	}
	none := connect(t, newTarget(t), testNQN)
	defer none.close()
	none.io.must(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil)
}

// again executes another command by a request that was answered, as transports use theirs.
func (fr *fakeRequest) again(cmd nvme.Command, data []byte) nvme.Status {
	c := fr.conn
	c.wg.Wait() // until it is Sent
	fr.answers.Store(0)
	fr.done, fr.Cmd, fr.host = make(chan struct{}), cmd, data
	c.submit(fr)
	return fr.wait().Status()
}

// TestRequestUsedAgain: a command isn't affected by an error of the volume in the command that its request carried
// before; it does the same as by a new request.
func TestRequestUsedAgain(t *testing.T) {
	copied, source := copyCommand(64, 1, nvme.CopyRange{SLBA: 0, Blocks: 8})
	discard, ranges := dsm(1, nvme.DSMRange{SLBA: 8, Blocks: 8})
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i/512 + i)
	}
	for name, x := range map[string]struct {
		cmd   nvme.Command
		data  []byte
		admin bool
	}{
		"Read":               {ioCommand(nvme.OpRead, 0, 8, 0), make([]byte, 4096), false},
		"Write":              {ioCommand(nvme.OpWrite, 0, 8, 0), make([]byte, 4096), false},
		"Compare":            {ioCommand(nvme.OpCompare, 0, 64, 0), content[:32<<10], false},
		"Verify":             {ioCommand(nvme.OpVerify, 0, 64, 0), nil, false},
		"Write Zeroes":       {ioCommand(nvme.OpWriteZeroes, 0, 8, 0), nil, false},
		"Copy":               {copied, source, false},
		"Dataset Management": {discard, ranges, false},
		"Flush of all":       {command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil, false},
		"Format":             {formatCommand(1, 0, nvme.EraseNone), nil, true},
		"write protection":   {setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			v, fresh := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512)
			copy(v.data, content)
			copy(fresh.data, content)
			s, other := connect(t, newTarget(t, v), testNQN), connect(t, newTarget(t, fresh), testNQN)
			defer s.close()
			defer other.close()
			c, o, failed := s.io, other.io, ioCommand(nvme.OpRead, 0, 8, 0)
			if x.admin {
				c, o, failed = s.admin, other.admin, formatCommand(1, 0, nvme.EraseNone)
			}
			v.setFail(&blockdev.OpError{Op: "test", Path: "test", Offset: 512, Kind: blockdev.ErrMedium})
			fr := c.start(failed, make([]byte, 4096))
			if st := fr.wait().Status(); st.OK() {
				t.Fatal("the volume didn't fail")
			}
			v.setFail(nil)
			if st := fr.again(x.cmd, x.data); !st.OK() {
				t.Errorf("status %#x", uint16(st))
			}
			o.must(x.cmd, x.data)
			if !bytes.Equal(v.data, fresh.data) {
				t.Error("it left other blocks than by a new request")
			}
		})
	}
}

// TestLongChain: a command that has a fast volume do much doesn't keep the transport waiting, which serves others.
func TestLongChain(t *testing.T) {
	discard, ranges := dsm(4, nvme.DSMRange{Blocks: 4 << 10}, nvme.DSMRange{SLBA: 4 << 10, Blocks: 4 << 10},
		nvme.DSMRange{SLBA: 8 << 10, Blocks: 4 << 10}, nvme.DSMRange{SLBA: 12 << 10, Blocks: 4 << 10})
	copied, source := copyCommand(16<<10, 0, nvme.CopyRange{Blocks: 16 << 10})
	for name, c := range map[string]struct {
		cmd   nvme.Command
		data  []byte
		first int // operations that may keep it waiting
		all   int
	}{
		"Dataset Management": {discard, ranges, 2, 4},
		"Copy":               {copied, source, atOnce / pieceSize, 2 * (16 << 20) / pieceSize},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newTestVolume(32<<20, 1024)
				waiting := make(chan struct{})
				v.fail = func(*blockdev.Request) error {
					if len(v.log) > c.first {
						<-waiting
					}
					return nil
				}
				s := connect(t, newTarget(t, v), testNQN)
				defer s.close()
				started := make(chan *fakeRequest, 1)
				go func() { started <- s.io.start(c.cmd, c.data) }()
				synctest.Wait()
				if len(started) == 0 {
					t.Error("the transport waits")
				}
				close(waiting)
				r := <-started
				if st := r.wait().Status(); !st.OK() || len(v.ops()) != c.all {
					t.Errorf("status %#x after %d operations, want %d", uint16(st), len(v.ops()), c.all)
				}
			})
		})
	}
}
