package target

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// FuzzCapsules sends arbitrary commands to a live controller, to admin and I/O queues, with
// data in the capsule or not. Nothing panics, each is answered once (the fake host checks),
// and nothing is left afterwards.
func FuzzCapsules(f *testing.F) {
	seed := func(cmds ...nvme.Command) {
		var b []byte
		for _, c := range cmds {
			b = append(b, c[:]...)
		}
		f.Add(b)
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
	f.Fuzz(func(t *testing.T, b []byte) {
		tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<16) },
			memVolume(t, 1<<16, 512), newTestVolume(1<<16, 4096))
		s := connect(t, tg, testNQN)
		fresh := dial(t, tg)
		for i := 0; len(b) >= nvme.CommandSize && i < 64; b, i = b[nvme.CommandSize:], i+1 {
			for _, c := range []*fakeConn{s.io, s.admin, fresh} {
				cmd := *nvme.CommandAt(b)
				if cmd[1] != 0 { // most flags are refused: spend few tries on them
					cmd.SetFlags(nvme.FlagsSGL)
				}
				c.start(cmd, make([]byte, min(int(binary.LittleEndian.Uint32(cmd[32:])&0xffffff), 1<<16)))
			}
		}
		fresh.hangUp(nil)
		s.close()
	})
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

// hostLife is one association, which ends orderly or not.
func hostLife(t *testing.T, tg *Target, rnd *rand.Rand) {
	s := &session{admin: dial(t, tg)}
	s.cntlid = connectAdmin(s.admin, testNQN, 0)
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
