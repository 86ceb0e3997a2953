package multipath

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestStatuses: what is retried, how often and when, and what isn't.
func TestStatuses(t *testing.T) {
	for name, c := range map[string]struct {
		status nvme.Status
		times  int // how often the first path answers so
		ok     bool
		want   int // answers of the first path
		took   time.Duration
	}{
		"media error":          {nvme.StatusUnrecoveredRead | nvme.StatusDNR, 1, false, 1, 0},
		"transient":            {nvme.StatusTransientTransport, 3, true, 4, 0},
		"too often":            {nvme.StatusTransientTransport, 100, false, 6, 0},
		"path error":           {nvme.StatusInternalPathError, 3, true, 4, 3 * pathPause},
		"path error for good":  {nvme.StatusInternalPathError | nvme.StatusDNR, 1, false, 1, 0},
		"not ready, DNR":       {nvme.StatusCommandSequence | nvme.StatusDNR, 3, true, 4, 3 * pathPause},
		"connection ends":      {nvme.StatusAbortSQDeleted, 3, true, 4, 3 * pathPause},
		"denied, DNR":          {nvme.StatusOperationDenied | nvme.StatusDNR, 3, true, 4, 3 * pathPause},
		"not authentic, DNR":   {nvme.StatusAuthenticationRequired | nvme.StatusDNR, 3, true, 4, 3 * pathPause},
		"always denied":        {nvme.StatusOperationDenied | nvme.StatusDNR, 100, false, 6, 5 * pathPause},
		"never ready":          {nvme.StatusCommandSequence | nvme.StatusDNR, 100, false, 6, 5 * pathPause},
		"inaccessible":         {nvme.StatusANAInaccessible, 3, true, 4, 2 * anaGap},
		"persistent loss, DNR": {nvme.StatusANAPersistentLoss | nvme.StatusDNR, 1, false, 1, 0},
		"delay":                {nvme.StatusCommandInterrupted | 2<<11, 1, true, 2, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				s, n := r.connect()
				defer r.close(s)
				s.Controllers()[0].Identify().CRDT2 = 3
				answers := 0
				r.links[0].set(func(l *link) {
					l.answer = func(_ *nvme.Command, cqe *nvme.Completion) {
						if answers++; answers <= c.times {
							cqe.SetStatus(c.status)
						}
					}
				})
				at := time.Now()
				_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
				if took := time.Since(at); took != c.took {
					t.Errorf("after %v, want %v", took, c.took)
				}
				if (err == nil) != c.ok || err != nil && !errors.Is(err, c.status) || answers != c.want {
					t.Errorf("%v after %d answers", err, answers)
				}
			})
		})
	}
}

// TestDelayedAnew: a delay that was over just as its request was taken doesn't end a later one of the same request.
func TestDelayedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect()
		defer r.close(s)
		q := &host.Request{Done: func(*host.Request) {}}
		q.Cmd.SetFlush(1)
		for tries := 1; ; tries++ {
			n.later(q, pathPause)
			synctest.Wait() // time stands still while anybody waits for mu
			s.mu.Lock()
			time.Sleep(pathPause)
			if !n.delayed[q].Stop() {
				break // the timer's function waits for mu
			}
			n.forget(q) // this goroutine woke up before the timer went off
			s.mu.Unlock()
			if tries == 100 {
				t.Fatal("the delay isn't over")
			}
		}
		n.delayed[q] = time.AfterFunc(time.Hour, func() {})
		s.mu.Unlock()
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !n.forget(q) {
			t.Error("it was sent an hour early")
		}
	})
}

// TestNotRepeatable: a command that mustn't be executed twice ends with the error of its path.
func TestNotRepeatable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		for _, l := range r.links {
			l.set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		}
		ended := make(chan error, 1)
		q := &host.Request{Data: make([]byte, 16), Done: func(r *host.Request) { ended <- r.Check() }}
		q.Cmd = nvme.Command{byte(nvme.OpResvRegister)}
		q.Cmd.SetNSID(1)
		n.Lane(0).SubmitOne(q)
		synctest.Wait()
		for _, l := range r.links {
			l.cut()
		}
		if err := <-ended; !errors.Is(err, host.ErrLost) || errors.Is(err, ErrNoPath) {
			t.Error(err)
		}
	})
}

// TestNotSent: a command that must not be executed twice still takes another path if the lost one hadn't sent it,
// and that doesn't count as a cut.
func TestNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect(func(c *Config) { c.Paths[0].Queues, c.Paths[0].QueueSize = 1, 2 }) // one command at a time
		defer r.close(s)
		lost := 0
		r.links[0].set(func(l *link) {
			l.hold = func(c *nvme.Command) bool { return c.Opcode() == nvme.OpRead && lost < maxCuts }
		})
		ended := make(chan error, 2)
		read := &host.Request{Cmd: nvme.Command{byte(nvme.OpRead)}, Data: directio.AlignedBlock(4096)}
		register := &host.Request{Cmd: nvme.Command{byte(nvme.OpResvRegister)}, Data: make([]byte, 16)}
		for _, q := range []*host.Request{read, register} {
			q.Done = func(r *host.Request) { ended <- r.Err }
			q.Cmd.SetNSID(1)
			n.Lane(0).SubmitOne(q)
		}
		for lost < maxCuts {
			synctest.Wait()
			lost++
			r.links[0].cut()
			r.links[0].restore(r.tgt)
			time.Sleep(time.Second)
		}
		if err := errors.Join(<-ended, <-ended); err != nil || read.Cuts != maxCuts || register.Cuts != 0 {
			t.Errorf("%v; cut short %d and %d times", err, read.Cuts, register.Cuts)
		}
	})
}

// TestNotRepeatableStatus: a command that was answered with an error may have been executed in part, like Copy, or
// have lost its other half. Only a status that says that it wasn't executed lets it be sent again.
func TestNotRepeatableStatus(t *testing.T) {
	fused := nvme.Command{byte(nvme.OpCompare), 1}
	for name, c := range map[string]struct {
		cmd    nvme.Command
		status nvme.Status
		want   int // answers
	}{
		"copy, aborted":      {nvme.Command{byte(nvme.OpCopy)}, nvme.StatusAbortRequested, 1},
		"copy, inaccessible": {nvme.Command{byte(nvme.OpCopy)}, nvme.StatusANAInaccessible, 2},
		"fused":              {fused, nvme.StatusAbortFailedFused, 1},
		"fused, path":        {fused, nvme.StatusANAInaccessible, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				s, n := r.connect()
				defer r.close(s)
				answers := 0
				r.links[0].set(func(l *link) {
					l.answer = func(_ *nvme.Command, cqe *nvme.Completion) {
						answers++
						cqe.SetStatus(c.status)
						if answers > 1 {
							cqe.SetStatus(nvme.StatusSuccess)
						}
					}
				})
				ended := make(chan error, 1)
				q := &host.Request{Cmd: c.cmd, Done: func(r *host.Request) { ended <- r.Check() }}
				q.Cmd.SetNSID(1)
				n.Lane(0).SubmitOne(q)
				if err := <-ended; (err == nil) != (c.want > 1) || answers != c.want {
					t.Errorf("%v after %d answers, want %d", err, answers, c.want)
				}
			})
		})
	}
}

// forgetful is a volume that loses what it has cached, and reports that to one flush, as a file does.
type forgetful struct {
	blockdev.Volume
	flushes atomic.Int32
}

func (v *forgetful) Info() blockdev.Info {
	i := v.Volume.Info()
	i.VolatileCache = true
	return i
}

func (v *forgetful) Submit(r *blockdev.Request) {
	if r.Op == blockdev.OpFlush && v.flushes.Add(1) == 1 {
		i := v.Info()
		r.End(i.Fail(r.Op, -1, blockdev.ErrMedium, nil))
		return
	}
	v.Volume.Submit(r)
}

// TestLostFlush: a caller of Flush is told what the volume has lost, although another Flush would succeed.
func TestLostFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
		if err != nil {
			t.Fatal(err)
		}
		v := &forgetful{Volume: mem}
		r := newRigOf(t, v, 1)
		s, n := r.connect()
		defer r.close(s)
		if err := n.Flush(t.Context()); !errors.Is(err, nvme.StatusWriteFault) {
			t.Errorf("%v after %d flushes", err, v.flushes.Load())
		}
		if err := n.Flush(t.Context()); err != nil {
			t.Errorf("the next one: %v", err)
		}
	})
}
