package rdma_test

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// honestQueues is how many connections the honest host of a sglRig has.
const honestQueues = 1 + replayQueues

// gone waits until only the honest host's connections are left.
func (r *sglRig) gone(what string) {
	r.t.Helper()
	for end := time.Now().Add(time.Hour); r.listener.Counters().Connections.Load() != honestQueues; time.Sleep(time.Second) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: %d connections after an hour, want %d", what, r.listener.Counters().Connections.Load(), honestQueues)
		}
	}
}

// TestHostThatBringsNoData: a host that never responds to the READs for its writes holds only its own share of the
// memory, and loses its connection. Other hosts are unaffected.
func TestHostThatBringsNoData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer, PeerMemory: 2 * sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		r.net.SetFilter(dropReadResponses)
		for i := range 31 {
			io.sendKeyed(blocks(nvme.OpWrite, i*sglTransfer, sglTransfer), 0, sglTransfer)
		}
		r.honest.work('a')
		if r.listener.Counters().MemoryWaits.Load() == 0 {
			t.Error("no command of the greedy host had to wait")
		}
		for ev := range io.events {
			if ev.Type == verbs.CMDisconnected {
				break
			}
		}
		r.honest.work('b')
		if len(io.answers) != 0 {
			t.Errorf("%d answers to writes without data", len(io.answers))
		}
		io.close()
		admin.close()
		r.gone("no data")
		if n := r.listener.Counters().Failed.Load(); n == 0 {
			t.Error("the target counts no failed connection")
		}
	})
}

// settled is the time after which the answers to Connect are acknowledged, and their memory is free.
const settled = 100 * time.Millisecond

// TestEndOfWhoWaitsForMemory: a connection that ends doesn't wait for memory that another one holds.
func TestEndOfWhoWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer, PeerMemory: 2 * sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		waitingAdmin, waiting := r.controller(0)
		time.Sleep(settled)
		r.net.SetFilter(dropReadResponses)
		for _, q := range []*sglQueue{io, waiting} {
			for i := range 4 {
				q.sendKeyed(blocks(nvme.OpWrite, i*sglTransfer, sglTransfer), 0, sglTransfer)
			}
			time.Sleep(time.Millisecond)
		}
		if n := r.listener.Counters().MemoryWaits.Load(); n != 6 {
			t.Errorf("%d commands had to wait, want 6", n)
		}
		waiting.close()
		waitingAdmin.close()
		time.Sleep(100 * time.Millisecond)
		if n := r.listener.Counters().Connections.Load(); n != honestQueues+2 {
			t.Errorf("%d connections are left, want %d", n, honestQueues+2)
		}
		io.close()
		admin.close()
		r.gone("all")
	})
}

// late is a volume that holds its Write Zeroes requests in held, and whose View first waits and then fails.
type late struct {
	blockdev.Memory
	held chan *blockdev.Request
	show chan struct{}
}

func (v late) Submit(r *blockdev.Request) {
	if r.Op == blockdev.OpWriteZeroes {
		v.held <- r
		return
	}
	v.Memory.Submit(r)
}

func (v late) View(segs []blockdev.Segment, _, _ int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	v.show <- struct{}{}
	<-v.show
	return segs, 0, blockdev.ErrView
}

// TestMemoryAfterTheEnd: a command that needs memory when its connection has already ended doesn't wait for it.
func TestMemoryAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer, PeerMemory: 2 * sglTransfer})
		defer r.close()
		v := late{memory(t, 1<<20).(blockdev.Memory), make(chan *blockdev.Request, 1), make(chan struct{})}
		if _, err := r.target.Subsystem(testNQN).AddNamespace(target.NamespaceConfig{NSID: 2, Volume: v}); err != nil {
			t.Fatal(err)
		}
		admin, io := r.controller(0)
		endingAdmin, ending := r.controller(0)
		time.Sleep(settled)
		r.net.SetFilter(dropReadResponses)

		// A read waits until the namespace is formatted, and two writes have all memory of the host.
		var format, read nvme.Command
		format.SetFormat(2, 0, 0)
		admin.sendKeyed(format, 0, 0)
		formatting := <-v.held
		read.SetIO(nvme.OpRead, 2, 0, 1, 0)
		ending.sendKeyed(read, 0, sglBlock)
		for i := range 2 {
			io.sendKeyed(blocks(nvme.OpWrite, i*sglTransfer, sglTransfer), 0, sglTransfer)
		}
		time.Sleep(time.Millisecond)
		go formatting.End(nil)
		<-v.show
		ending.close()
		endingAdmin.close()
		time.Sleep(100 * time.Millisecond)
		v.show <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		if n := r.listener.Counters().MemoryWaits.Load(); n != 1 {
			t.Errorf("%d commands had to wait, want 1", n)
		}
		if n := r.listener.Counters().Connections.Load(); n != honestQueues+2 {
			t.Errorf("%d connections are left, want %d", n, honestQueues+2)
		}
		io.close()
		admin.close()
		r.gone("all")
	})
}

// TestHostThatTakesNoAnswer: a host that posts no receives for the answers, and stays silent, is given up after its
// keep-alive timeout. Other hosts are unaffected.
func TestHostThatTakesNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kato = time.Second
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(uint32(kato.Milliseconds()))
		began := time.Now()
		for range rawRecvs + 8 { // each receive of the host takes one answer
			io.sendKeyed(blocks(nvme.OpRead, 0, sglBlock), 0, sglBlock)
			time.Sleep(time.Millisecond)
		}
		r.honest.work('a')
		if n := r.hn.dev.Counters()[roce.OutOfBuffer]; n == 0 {
			t.Error("the host took every answer")
		}
		r.gone("no receives")
		if took := time.Since(began); took < kato || took > 4*kato {
			t.Errorf("given up after %v, want some %v", took, kato)
		}
		r.honest.work('b')
		io.close()
		admin.close()
	})
}

// TestHostBreaksTheRules: a host whose packets the target has to refuse learns that its connection has ended.
func TestHostBreaksTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		io.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: io.sge(sglData, 8), RKey: 1})
		select {
		case ev := <-io.events:
			if ev.Type != verbs.CMDisconnected {
				t.Errorf("%v", ev.Type)
			}
		case <-time.After(time.Second):
			t.Error("the target keeps the connection")
		}
		io.close()
		admin.close()
	})
}

// TestCommandsWaitForAnswersToLeave: if a host sends commands while it accepts no answers, they are executed when it
// does, each once, in order.
func TestCommandsWaitForAnswersToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		const commands = rawRecvs + 2*32 + 8 // answers taken, requests of a queue of 32, and more
		first := io.sent + 1
		taken := 1 // that of Connect
		for range commands {
			io.sendKeyed(blocks(nvme.OpRead, 0, sglBlock), 0, sglBlock)
			time.Sleep(time.Millisecond)
		}
		for i := range commands {
			if taken == rawRecvs {
				taken = 0
				for index := range rawRecvs {
					if err := io.postRecv(index); err != nil {
						t.Fatal(err)
					}
				}
			}
			cqe := io.answer()
			if taken++; int(cqe.CID()) != first+i || cqe.Status() != nvme.StatusSuccess {
				t.Fatalf("answer %d: command %d, %v", i, int(cqe.CID())-first, cqe.Status())
			}
		}
		io.close()
		admin.close()
	})
}

// TestWildQueueSizes: each invalid size is refused with its NVMe/RDMA status, and costs the target nothing.
func TestWildQueueSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer, QueueDepth: 64})
		defer r.close()
		for _, tc := range []struct {
			name          string
			qid, hrq, hsq uint16
			want          rdma.RejectStatus // 0: accepted
		}{
			{"admin queue of 33", 0, 33, 32, rdma.RejectInvalidHSQSize},
			{"admin queue of 65536", 0, 0xffff, 0xffff, rdma.RejectInvalidHSQSize},
			{"admin queue of 1", 0, 32, 0, rdma.RejectInvalidHSQSize},
			{"I/O queue of 65", 1, 65, 64, rdma.RejectInvalidHSQSize},
			{"I/O queue of 65536", 1, 0xffff, 0xffff, rdma.RejectInvalidHSQSize},
			{"I/O queue of 1", 1, 1, 0, rdma.RejectInvalidHSQSize},
			{"no room for an answer", 1, 0, 31, rdma.RejectInvalidHRQSize},
			{"room for 65535 answers", 1, 0xffff, 31, 0},
		} {
			var request [32]byte
			for i, v := range []uint16{0, tc.qid, tc.hrq, tc.hsq} {
				binary.LittleEndian.PutUint16(request[2*i:], v)
			}
			q := &rawPeer{t: t}
			ev := q.request(r.hn, request[:])
			if tc.want == 0 {
				if ev.Type != verbs.CMEstablished {
					t.Errorf("%s: %v, reason %v", tc.name, ev.Type, ev.Reason)
				}
			} else if ev.Type != verbs.CMRejected || ev.Reason != verbs.RejectConsumer ||
				rdma.RejectStatus(binary.LittleEndian.Uint16(ev.Param.PrivateData[2:])) != tc.want {
				t.Errorf("%s: %v, reason %v, private data %x", tc.name, ev.Type, ev.Reason, ev.Param.PrivateData)
			}
			q.close()
			r.gone(tc.name)
		}
		if n := r.listener.Counters().Rejected.Load(); n != 7 {
			t.Errorf("%d refused connections counted, want 7", n)
		}
		if n := r.listener.Counters().Limited.Load(); n != 0 {
			t.Errorf("%d of them are counted as for a limit", n)
		}
	})
}

// TestDisconnectEnds: nothing follows the response to Disconnect, even if the host has sent another command.
func TestDisconnectEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		defer admin.close()
		defer io.close()
		for _, set := range []func(c *nvme.Command){(*nvme.Command).SetDisconnect, func(c *nvme.Command) { c.SetFlush(1) }} {
			var cmd nvme.Command
			set(&cmd)
			cmd.SetFlags(nvme.FlagsSGL)
			io.send(cmd, nil)
		}
		for ev := range io.events {
			if ev.Type == verbs.CMDisconnected {
				break
			}
		}
		cqe := io.answer()
		if cqe.CID() != uint16(io.sent-1) || !cqe.Status().OK() || len(io.answers) != 0 {
			t.Errorf("command %d of %d: %v, and %d responses more", cqe.CID(), io.sent, cqe.Status(), len(io.answers))
		}
	})
}
