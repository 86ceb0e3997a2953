package target

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// FuzzCapsules sends arbitrary commands to a live controller, to admin and I/O queues, with
// data in the capsule or not. Nothing panics, each is answered once (the fake host checks),
// a good host can always connect, and nothing is left afterwards.
func FuzzCapsules(tf *testing.F) {
	f := fuzzing.New(tf)
	seed := func(cmds ...nvme.Command) {
		var b []byte
		for _, c := range cmds {
			b = append(b, c[:]...)
		}
		f.Add(uint8(0), b)
	}
	page := func(c nvme.Command) nvme.Command { c.SGL1().SetKeyed(nvme.SGLKeyed, 0, 4096, 1); return c }
	seed(connectCommand(0, 31, 0), setProperty(nvme.PropCC, 0), setProperty(nvme.PropCC, 0x460001), getProperty(nvme.PropCSTS))
	seed(page(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) })), asyncEvent(1), asyncEvent(2))
	seed(page(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: 1, Length: 4096})), keepAlive,
		command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 1) }))
	seed(page(ioCommand(nvme.OpRead, 0, 8, 0)), page(ioCommand(nvme.OpWrite, 0, 8, 0)), inCapsule(ioCommand(nvme.OpWrite, 3, 8, 0), 4096),
		page(ioCommand(nvme.OpCompare, 0, 8, 0)), ioCommand(nvme.OpVerify, 0, 8, 0), ioCommand(nvme.OpWriteZeroes, 0, 8, 0),
		page(command(func(c *nvme.Command) { c.SetDSM(1, 8, nvme.DSMDeallocate) })), command(func(c *nvme.Command) { c.SetDisconnect() }))
	seed(page(createCommand()), page(attachCommand(FirstCreatedNSID, nvme.NSAttach)), deleteCommand(FirstCreatedNSID), deleteCommand(nvme.NSIDAll))
	seed(sanitizeCommand(nvme.SanitizeOverwrite, nvme.SanitizeOIPBP, 2, 5), page(getLog(nvme.GetLogPage{LID: nvme.LogSanitize, Length: 4096})),
		page(getLog(nvme.GetLogPage{LID: nvme.LogPersistent, LSP: 1, Length: 4096})))
	f.Worlds(func(t *testing.T, _ uint8, inputs iter.Seq[[]byte]) {
		synctest.Test(t, func(t *testing.T) {
			w := newFuzzWorld(t)
			n := 0
			for data := range inputs {
				if n++; n%fuzzSession == 0 || w.io.isClosed() || w.admin.isClosed() {
					w.hangUp()
					w.connect()
				}
				if w.fresh.isClosed() {
					w.fresh = dial(t, w.tg)
				}
				w.feed(data)
			}
			w.hangUp()
		})
	})
}

// fuzzSession is how many inputs go to one controller, unless it ends before.
const fuzzSession = 32

// fuzzWorld is a target with one host, whose third connection has not connected yet.
type fuzzWorld struct {
	t *testing.T
	*session
	tg    *Target
	fresh *fakeConn
	spare []byte // memory for a command's data
}

func newFuzzWorld(t *testing.T) *fuzzWorld {
	t.Helper()
	tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<16) },
		memVolume(t, 1<<14, 512), newTestVolume(1<<14, 4096)) // small: Sanitize writes all of them
	w := &fuzzWorld{t: t, tg: tg}
	w.connect()
	return w
}

func (w *fuzzWorld) connect() {
	w.session = connect(w.t, w.tg, testNQN)
	w.fresh = dial(w.t, w.tg)
}

// feed sends each command to each of the connections.
func (w *fuzzWorld) feed(b []byte) {
	for i := 0; len(b) >= nvme.CommandSize && i < 64; b, i = b[nvme.CommandSize:], i+1 {
		for _, c := range []*fakeConn{w.io, w.admin, w.fresh} {
			cmd := *nvme.CommandAt(b)
			if cmd[1] != 0 { // most flags are refused: spend few tries on them
				cmd.SetFlags(nvme.FlagsSGL)
			}
			if w.spare == nil {
				w.spare = make([]byte, 1<<16)
			}
			if !c.stay() {
				continue
			}
			fr := c.start(cmd, w.spare[:min(int(binary.LittleEndian.Uint32(cmd[32:])&0xffffff), 1<<16)])
			c.wg.Done()
			select {
			case <-fr.done:
			default: // its data may still be written
				w.spare = nil
			}
		}
	}
}

// stay keeps a connection from being closed until wg.Done, unless it is ending: a transport submits
// nothing then.
func (c *fakeConn) stay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead {
		c.wg.Add(1)
	}
	return !c.dead
}

func (w *fuzzWorld) hangUp() {
	w.fresh.hangUp(nil)
	w.close()
}

// TestConcurrentHosts: hosts come, work and go on several goroutines, while namespaces come
// and go and counters are read.
func TestConcurrentHosts(t *testing.T) {
	late := newTestVolume(1<<20, 4096)
	late.late = true
	tg := newTarget(t, memVolume(t, 1<<20, 4096), late)
	sub := tg.Subsystem(testNQN)
	extra := newTestVolume(1<<20, 4096)
	var hosts, rest sync.WaitGroup
	for h := range 4 {
		hosts.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(h), 1))
			for range 8 {
				hostLife(t, tg, rnd)
			}
		})
	}
	stop := make(chan struct{})
	rest.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := sub.AddNamespace(NamespaceConfig{NSID: 3, Volume: extra}); err != nil {
				t.Error(err)
			}
			tg.Snapshot()
			if err := sub.RemoveNamespace(3); err != nil {
				t.Error(err)
			}
		}
	})
	hosts.Wait()
	close(stop)
	rest.Wait()
}

// hostLife is one association, which ends in an orderly way or not.
func hostLife(t *testing.T, tg *Target, rnd *rand.Rand) {
	s := &session{admin: dial(t, tg)}
	s.cntlid = connectAdmin(s.admin, testNQN, 0)
	if !soon.Until(func() bool { return status(s.admin).Ready() }) { // the same host may have left commands behind
		t.Error("not ready")
	}
	s.io = s.addQueue(t, tg, 1, testNQN, transportModes["both later"])
	enableEvents(s.admin, nvme.AENNamespace)
	for range 3 {
		s.admin.start(asyncEvent(1), nil)
	}
	for range 100 {
		data := make([]byte, 4096)
		op := nvme.OpRead
		if rnd.IntN(2) == 0 {
			op = nvme.OpWrite
		}
		cmd := ioCommand(op, uint64(rnd.IntN(256)), 1, 0)
		cmd.SetNSID(uint32(1 + rnd.IntN(3)))
		s.io.start(cmd, data)
	}
	switch rnd.IntN(3) {
	case 0:
		s.close()
	case 1:
		s.admin.hangUp(errLost)
		s.io.waitClosed()
	case 2:
		tg.controller(s.cntlid).fatal(ErrKeepAlive)
		s.admin.waitClosed()
		s.io.waitClosed()
	}
}
