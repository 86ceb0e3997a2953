package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// hostileSink records what a queue delivers. It accepts each response.
type hostileSink struct {
	mu     sync.Mutex
	done   []uint16
	closed chan error
}

func (s *hostileSink) Completed(cqe *nvme.Completion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, cqe.CID())
	return true
}

func (s *hostileSink) Closed(err error) { s.closed <- err }

func (s *hostileSink) completed() []uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.done)
}

// hostileRig is a host whose target acknowledges no packet, and answers whatever it likes.
type hostileRig struct {
	*hostWorld
	sink *hostileSink
	mem  []byte // lent by windows
}

const hostileSize = 16 // entries of its queue

func newHostileRig(t *testing.T) *hostileRig {
	w := newHostWorld(t, 0, func(d *roce.Device) uint32 { return d.VendorOptions() &^ roce.OptionAckAlong })
	mem, err := w.tr.Alloc(hostileSize * fuzzLength)
	if err != nil {
		t.Fatal(err)
	}
	r := &hostileRig{w, &hostileSink{closed: make(chan error, 1)}, mem}
	w.q, err = w.tr.Dial(context.Background(), host.QueueAttr{Remote: simNVMe, QID: 1, CNTLID: 1, Size: hostileSize, Sink: r.sink})
	if err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.net.SetFilter(dropAcknowledges)
	return r
}

// dropAcknowledges makes the target acknowledge no packet.
func dropAcknowledges(d *simnet.Datagram) simnet.Action {
	return simnet.Action{Drop: d.Src == simTarget && wire.Opcode(d.Payload[0]).Kind() == wire.KindAcknowledge}
}

// submit sends reads with these CIDs, and returns the commands that arrived.
func (r *hostileRig) submit(cids ...uint16) map[uint16]nvme.Command {
	var all []*host.Request
	for _, cid := range cids {
		q := &host.Request{Data: r.mem[int(cid%hostileSize)*fuzzLength:][:fuzzLength], Slot: cid % hostileSize}
		q.Cmd.SetIO(nvme.OpRead, 1, 0, 8, 0)
		q.Cmd.SetCID(cid)
		all = append(all, q)
	}
	r.q.Submit(all)
	r.settle()
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	got := map[uint16]nvme.Command{}
	for _, m := range r.got {
		cmd := nvme.CommandAt(r.p.area(m.index*rawRecvSize, nvme.CommandSize))
		got[cmd.CID()] = *cmd
		_ = r.p.postRecv(m.index)
	}
	r.got = nil
	return got
}

// answer completes a command, and invalidates its key if it has one.
func (r *hostileRig) answer(cid uint16, key uint32) { r.answerPart(cid, key, nvme.CompletionSize) }

// answerPart sends the first n bytes of that.
func (r *hostileRig) answerPart(cid uint16, key uint32, n int) {
	cqe := r.p.area(rawRecvs*rawRecvSize+int(cid%64)*nvme.CompletionSize, nvme.CompletionSize)
	clear(cqe)
	nvme.CompletionAt(cqe).SetCID(cid)
	wr := verbs.SendWR{Opcode: verbs.WRSend, SGList: r.p.sge(rawRecvs*rawRecvSize+int(cid%64)*nvme.CompletionSize, n)}
	if key != 0 {
		wr.Opcode, wr.InvalidateRKey = verbs.WRSendWithInv, key
	}
	r.p.post(wr)
	r.settle()
}

// broken waits until the queue has ended because of what the target did.
func (r *hostileRig) broken() {
	r.t.Helper()
	select {
	case err := <-r.sink.closed:
		if !errors.Is(err, rdma.ErrProtocol) {
			r.t.Errorf("ended because of %v, want a protocol error", err)
		}
	case <-time.After(time.Second):
		r.t.Error("the queue goes on")
	}
}

func (r *hostileRig) close() {
	r.net.SetFilter(nil)
	_ = r.q.Close()
	r.q = nil
	r.tr.Free(r.mem)
	r.p.close()
	r.hostWorld.close()
}

// fill answers commands until the host has no room for the next one, because no acknowledgement frees any. It returns a
// command that arrived and is not answered, and one that waits for room.
func (r *hostileRig) fill() (arrived, waits uint16) {
	r.t.Helper()
	for round := range uint16(8) {
		var cids []uint16
		for i := range uint16(hostileSize - 1) {
			cids = append(cids, round*hostileSize+i)
		}
		got := r.submit(cids...)
		if len(got) > 0 && len(got) < len(cids) {
			return cids[0], cids[len(cids)-1]
		}
		for _, cid := range cids {
			cmd := got[cid]
			r.answer(cid, cmd.SGL1().Key())
			if !slices.Contains(r.sink.completed(), cid) {
				r.t.Fatalf("command %#x of round %d is not completed", cid, round)
			}
		}
	}
	r.t.Fatal("the send queue doesn't fill")
	return 0, 0
}

// TestResponsesWithoutEnd: a target that answers one command again and again, doesn't invalidate its key, and keeps the
// send queue full so that the host can't either, doesn't make the host accumulate anything: the second answer ends the
// connection.
func TestResponsesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		cid, _ := r.fill()
		for range 3 {
			r.answer(cid, 0)
		}
		r.broken()
		if slices.Contains(r.sink.completed(), cid) {
			t.Error("a response is delivered while the key lives")
		}
	})
}

// TestResponseTwice: a second response is an error, whether the target invalidated the key or the host has to.
func TestResponseTwice(t *testing.T) {
	for _, invalidates := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newHostileRig(t)
			defer r.close()
			cmd := r.submit(0)[0]
			want := 0 // our invalidation waits behind the command, which is not acknowledged
			var key uint32
			if invalidates {
				want, key = 1, cmd.SGL1().Key()
			}
			r.answer(0, key)
			r.answer(0, 0)
			r.broken()
			if n := len(r.sink.completed()); n != want {
				t.Errorf("completed %d times, want %d", n, want)
			}
		})
	}
}

// TestNoResponse: a message that is shorter than a response, or names an impossible command, ends the connection and
// completes no command.
func TestNoResponse(t *testing.T) {
	for name, answer := range map[string]func(r *hostileRig){
		"nothing":   func(r *hostileRig) { r.answerPart(0, 0, 0) },
		"part":      func(r *hostileRig) { r.answerPart(0, 0, nvme.CompletionSize-1) },
		"last slot": func(r *hostileRig) { r.answer(hostileSize-1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newHostileRig(t)
				defer r.close()
				r.submit(0)
				answer(r)
				r.broken()
				if done := r.sink.completed(); len(done) > 0 {
					t.Errorf("completed %v", done)
				}
			})
		})
	}
}

// TestResponseTooLong: a message that is longer than a response ends the connection, and the error says that a receive
// was too short for it.
func TestResponseTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		r.submit(0)
		r.answerPart(0, 0, nvme.CompletionSize+1)
		select {
		case err := <-r.sink.closed:
			var failed *rdma.CompletionError
			if !errors.As(err, &failed) || failed.Status != verbs.WCLocLenErr || failed.What != "receive" {
				t.Errorf("ended because of %v", err)
			}
		case <-time.After(time.Second):
			t.Error("the queue goes on")
		}
		if done := r.sink.completed(); len(done) > 0 {
			t.Errorf("completed %v", done)
		}
	})
}

// TestCommandNotAcknowledged: a command that the target never acknowledges ends the connection, and the error names the
// command.
func TestCommandNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		r.submit(0)
		err := <-r.sink.closed
		var failed *rdma.CompletionError
		if !errors.As(err, &failed) || failed.Status != verbs.WCRetryExcErr || failed.What != "command" {
			t.Errorf("ended because of %v", err)
		}
	})
}

// TestKeysLeftAlive: if a target never invalidates keys, the host does it, command after command.
func TestKeysLeftAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		r.net.SetFilter(nil)
		for i := range 20 * hostileSize {
			r.submit(uint16(i % (hostileSize - 1)))
			r.answer(uint16(i%(hostileSize-1)), 0)
			if n := len(r.sink.completed()); n != i+1 {
				t.Fatalf("%d of %d commands are completed", n, i+1)
			}
		}
	})
}

// TestResponseBeforeCommand: a command that waits for room in the send queue, which a target keeps full by withholding
// acknowledgements, can't be answered: otherwise its memory would be lent to the target after it has gone back to its
// owner.
func TestResponseBeforeCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		_, waits := r.fill()
		r.answer(waits, 0)
		r.broken()
		if slices.Contains(r.sink.completed(), waits) {
			t.Error("a command that was not sent has completed")
		}
	})
}

// TestAnsweredWriteIsNotSentAgain: a write whose data was sent in the capsule is not retransmitted, with whatever its
// owner has put into the memory since, to a target that answered it and acknowledges nothing.
func TestAnsweredWriteIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		r.redial(hostileSize, 4096)
		var leaked atomic.Int64
		secret := bytes.Repeat([]byte("secret.."), 8)
		r.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
			if d.Src == simHost && bytes.Contains(d.Payload, secret) {
				leaked.Add(1)
			}
			return simnet.Action{Drop: d.Src == simTarget && wire.Opcode(d.Payload[0]).Kind() == wire.KindAcknowledge}
		})
		data := r.mem[:fuzzLength]
		q := &host.Request{Data: data, Slot: 0}
		q.Cmd.SetIO(nvme.OpWrite, 1, 0, 8, 0)
		r.q.Submit([]*host.Request{q})
		r.settle()
		r.answer(0, 0)
		if len(r.sink.completed()) == 1 {
			for i := 0; i < len(data); i += 8 {
				copy(data[i:], "secret..")
			}
		}
		time.Sleep(2 * time.Second)
		if n := leaked.Load(); n > 0 {
			t.Errorf("%d packets with data of after the end of the command", n)
		}
	})
}

// fragments is a volume in memory that shows 1 MiB in as many pieces as a view may have, like persistent memory that was
// written at random.
type fragments struct{ blockdev.Memory }

func (f fragments) View(segs []blockdev.Segment, offset, length int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	const piece = 1 << 20 / blockdev.MaxSegments
	whole, token, err := f.Memory.View(nil, offset, length)
	for _, s := range whole {
		for b := range slices.Chunk(s.Bytes, piece) {
			segs = append(segs, blockdev.Segment{Region: s.Region, Bytes: b})
		}
	}
	return segs, token, err
}

// TestSmallQueueOfFragments: a queue of few entries reads the largest transfers, each of which takes all of the send
// queue, from memory in as many pieces as there can be, two of which take a work request.
func TestSmallQueueOfFragments(t *testing.T) {
	r := lesserRig(t, fragments{memory(t, 4<<20).(blockdev.Memory)}, lesserCM{
		windows: true, onDemand: true, attr: func(a *verbs.DeviceAttr) { a.MaxSGE = 2 },
	})
	for _, size := range []int{2, 4} {
		c := r.connect(t, func(cfg *host.Config) { cfg.QueueSize, cfg.Queues, cfg.IOTimeout = size, 1, 20*time.Second })
		ns := namespace(t, c, 1)
		if _, err := ns.WriteAt(t.Context(), bytes.Repeat([]byte{7}, 1<<20), 0); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range size - 1 {
			wg.Go(func() {
				buf := make([]byte, 1<<20)
				if _, err := ns.ReadAt(t.Context(), buf, 0); err != nil {
					t.Error(err)
				} else if bytes.Count(buf, []byte{7}) != len(buf) {
					t.Error("the data came back different")
				}
			})
		}
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOtherKeyInvalidated: a response that invalidates another command's key is an error, and doesn't complete a
// command whose memory the target can still reach.
func TestOtherKeyInvalidated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHostileRig(t)
		defer r.close()
		cmds := r.submit(0, 1)
		other := cmds[1]
		r.answer(0, other.SGL1().Key())
		r.broken()
		if slices.Contains(r.sink.completed(), 0) {
			t.Error("a command is over whose key lives")
		}
	})
}
