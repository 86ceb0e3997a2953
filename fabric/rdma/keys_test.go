package rdma_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// redial reconnects the rig's host, with another queue, to a target that acknowledges.
func (r *hostileRig) redial(size, inCapsule int) {
	r.t.Helper()
	_ = r.q.Close()
	r.p.close()
	<-r.sink.closed
	time.Sleep(time.Second)
	r.net.SetFilter(nil)
	var err error
	r.q, err = r.tr.Dial(context.Background(), host.QueueAttr{
		Remote: simNVMe, QID: 1, CNTLID: 1, Size: size, InCapsule: inCapsule, Sink: r.sink,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.settle()
}

// send sends one command in slot 0, and returns it as it arrived.
func (r *hostileRig) send(cmd nvme.Command, data []byte) nvme.Command {
	r.t.Helper()
	r.q.Submit([]*host.Request{{Cmd: cmd, Data: data}})
	r.settle()
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if len(r.got) != 1 {
		r.t.Fatalf("%d commands arrived", len(r.got))
	}
	m := r.got[0]
	r.got = nil
	got := *nvme.CommandAt(r.p.area(m.index*rawRecvSize, nvme.CommandSize))
	_ = r.p.postRecv(m.index)
	return got
}

// TestSlotBeyondTheQueue: a response to a command whose identifier's low bits name a slot beyond the queue ends the
// connection.
func TestSlotBeyondTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		r.redial(12, 0)
		r.submit(0)
		r.answer(12, 0)
		r.broken()
	})
}

// TestEntriesOfTheSendQueue: however commands and their data were sent, and keys lent, the host knows how much room its
// send queue has, and never posts more.
func TestEntriesOfTheSendQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		r.redial(hostileSize, fuzzLength)
		var read, write nvme.Command
		read.SetIO(nvme.OpRead, 1, 0, 8, 0)
		write.SetIO(nvme.OpWrite, 1, 0, 8, 0)
		for i := range 20 {
			for range 1 + i%7 {
				got := r.send(read, r.mem[:fuzzLength])
				r.answer(0, got.SGL1().Key())
			}
			for range i % 4 {
				got := r.send(write, r.mem[:fuzzLength])
				if got.SGL1().Type() != nvme.SGLInCapsule {
					t.Fatalf("data by SGL type %#x", got.SGL1().Type())
				}
				r.answer(0, 0)
			}
		}
		r.net.SetFilter(dropAcknowledges)
		r.fill()
		r.net.SetFilter(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case err := <-r.sink.closed:
			t.Errorf("it posted more: %v", err)
			r.sink.closed <- err
		default:
		}
	})
}

// TestNoDataSGL: a command without data has a keyed descriptor of no bytes and no key.
func TestNoDataSGL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		var cmd nvme.Command
		cmd.SetFlush(1)
		cmd.SGL1().SetBlock(nvme.SGLInCapsule, 5, 6) // left from the slot's previous command
		got := r.send(cmd, nil)
		if s := got.SGL1(); s.Type() != nvme.SGLKeyed || s.KeyedLength() != 0 || s.Key() != 0 || s.Address() != 0 {
			t.Errorf("type %#x, %d bytes at %#x, key %#x", s.Type(), s.KeyedLength(), s.Address(), s.Key())
		}
	})
}

// TestKeyOfAnEarlierCommand: a key that the host has invalidated isn't invalidated again after the slot's next command,
// which has none.
func TestKeyOfAnEarlierCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		r.redial(hostileSize, 0)
		var read, flush nvme.Command
		read.SetIO(nvme.OpRead, 1, 0, 8, 0)
		flush.SetFlush(1)
		r.send(read, r.mem[:fuzzLength])
		r.answer(0, 0)
		r.send(flush, nil)
		r.answer(0, 0)
		if n := r.tr.Counters().LocalInvalidates.Load(); n != 1 || len(r.sink.completed()) != 2 {
			t.Errorf("%d keys invalidated, want 1; completed %v", n, r.sink.completed())
		}
		select {
		case err := <-r.sink.closed:
			t.Error(err)
			r.sink.closed <- err
		default:
		}
	})
}

// watchingSink calls functions when a command or its queue ends.
type watchingSink struct{ completed, closed func() }

func (s watchingSink) Completed(*nvme.Completion) bool { s.completed(); return true }
func (s watchingSink) Closed(error)                    { s.closed() }

// TestRegistrationsOfCommands: memory that was registered for a command is deregistered when its owner is told of the
// command's end, with or without an answer: otherwise a target could still write to it, if only through another queue.
func TestRegistrationsOfCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostWorld(t, 0, (*roce.Device).VendorOptions)
		defer w.close()
		cm := &countingCM{ConnectionManager: w.hn}
		tr := newTransport(t, cm, rdma.HostConfig{})
		answered, left := int64(-1), int64(-1)
		q, err := tr.Dial(context.Background(), host.QueueAttr{Remote: simNVMe, QID: 1, CNTLID: 1, Size: 16, Sink: watchingSink{
			completed: func() { answered = cm.registered.Load() },
			closed:    func() { left = cm.registered.Load() },
		}})
		if err != nil {
			t.Fatal(err)
		}
		before := cm.registered.Load()
		for i, r := range w.requests {
			r.Slot = uint16(i)
			r.Cmd.SetCID(uint16(i))
		}
		q.Submit(w.requests)
		w.settle()
		all := before + int64(len(w.requests))
		if n := cm.registered.Load(); n != all {
			t.Errorf("%d registrations, want %d", n, all)
		}
		(&hostileRig{hostWorld: w}).answer(0, 0)
		if answered != all-1 {
			t.Errorf("%d registrations at the first answer, want %d", answered, all-1)
		}
		_ = q.Close()
		if left != before {
			t.Errorf("%d registrations when the queue has ended, want %d", left, before)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		w.p.close()
		time.Sleep(time.Second)
	})
}

// TestKeysInvalidated: a target invalidates with its response each key that it is allowed to invalidate, so that the
// host doesn't have to.
func TestKeysInvalidated(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	c := r.connect(t, nil)
	defer c.Close()
	ns := namespace(t, c, 1)
	data, err := c.Alloc(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(data)
	before, invalidates := r.transport.Counters().LocalInvalidates.Load(), r.listener.Counters().Invalidates.Load()
	for range 10 {
		if _, err := ns.WriteAt(t.Context(), data, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := ns.ReadAt(t.Context(), data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.transport.Counters().LocalInvalidates.Load() - before; n != 0 {
		t.Errorf("the host invalidated %d keys", n)
	}
	if n := r.listener.Counters().Invalidates.Load() - invalidates; n != 20 {
		t.Errorf("the target invalidated %d keys, want 20", n)
	}
}

// TestConnectionsLeaveNothing: when a queue has ended, its memory and its room in the completion queue are free again,
// and so are those of a queue that was refused.
func TestConnectionsLeaveNothing(t *testing.T) {
	for name, refuse := range map[string]bool{"ended": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simNetwork(true)
				tn, hn := newSimNIC(t, n, simTarget), newSimNIC(t, n, simHost)
				tgt, err := target.New(target.Config{})
				if err != nil {
					t.Fatal(err)
				}
				ours, theirs := &countingCM{ConnectionManager: hn}, &countingCM{ConnectionManager: tn}
				l := listen(t, theirs, simNVMe, tgt, rdma.TargetConfig{})
				tr := newTransport(t, ours, rdma.HostConfig{Memory: 8 << 20})
				size := 128 // 8 KiB of commands, 2 KiB of responses, and data beside each command
				if refuse {
					size++
				}
				for i := range 1200 {
					q, err := tr.Dial(t.Context(), host.QueueAttr{Remote: simNVMe, QID: 1, CNTLID: 1, Size: size, InCapsule: 4096,
						Sink: watchingSink{closed: func() {}}})
					var refused *rdma.RejectError
					if errors.As(err, &refused) != refuse || refuse && refused.Status != rdma.RejectInvalidHSQSize || !refuse && err != nil {
						t.Fatalf("connection %d: %v", i, err)
					}
					if q != nil {
						_ = q.Close()
					}
				}
				if a, b := ours.cqs.Load(), theirs.cqs.Load(); a > 1 || b > 1 {
					t.Errorf("%d and %d completion queues", a, b)
				}
				for _, end := range []func() error{tr.Close, l.Close, func() error { return tgt.Close(context.Background()) }} {
					if err := end(); err != nil {
						t.Error(err)
					}
				}
				hn.close(t)
				tn.close(t)
			})
		})
	}
}
