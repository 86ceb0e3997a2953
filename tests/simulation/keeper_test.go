package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// keptDisk is the disk on which hosts take reservations. It is never removed, so that they last.
const keptDisk = 1

// keeper has hosts reserve a disk, and preempt each other, one command at a time, so that it knows who may do what.
type keeper struct {
	w   *world
	rng *rand.Rand

	persist bool // reservations outlive the target

	turn       chan struct{} // a lock to wait for in virtual time
	registered map[int]bool
	holder     int // -1: none
	typ        nvme.ResvType
	sure       bool // that it is so
}

func newKeeper(w *world, rng *rand.Rand) *keeper {
	return &keeper{w: w, rng: rng, persist: rng.IntN(2) == 0, turn: make(chan struct{}, 1), registered: map[int]bool{}, holder: -1, sure: true}
}

func key(host int) uint64 { return uint64(host) + 1 }

// run changes reservations until stop is closed.
func (k *keeper) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond << k.rng.IntN(9)):
		}
		k.turn <- struct{}{}
		k.change()
		<-k.turn
	}
}

// lost notes that the target ends, and all reservations with it.
func (k *keeper) lost() {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	k.allow()
	k.registered, k.holder, k.sure = map[int]bool{}, -1, false
}

// allow notes that anybody may be able to do anything from now on.
func (k *keeper) allow() {
	k.w.histories[keptDisk].deny(map[int]denial{})
}

// change makes one change, after which it is known again who may do what, or not.
func (k *keeper) change() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if !k.sure {
		k.find(ctx)
		return
	}
	i := k.rng.IntN(len(k.w.hosts))
	ns := k.w.hosts[i].space(keptDisk)
	var err error
	old := -1 // the host whose commands are aborted
	k.allow()
	switch holder := k.holder; {
	case !k.registered[i]:
		persist := nvme.CPTPLClear
		if k.persist {
			persist = nvme.CPTPLSet
		}
		if err = ns.ReservationRegister(ctx, nvme.ResvRegister, nvme.ResvKeys{Other: key(i)}, false, persist); err == nil {
			k.registered[i] = true
		}
	case holder < 0 && k.rng.IntN(4) == 0:
		if err = ns.ReservationRegister(ctx, nvme.ResvUnregister, nvme.ResvKeys{Current: key(i)}, false, 0); err == nil {
			delete(k.registered, i)
		}
	case holder < 0:
		typ := nvme.ResvType(1 + k.rng.IntN(4))
		if err = ns.ReservationAcquire(ctx, nvme.ResvAcquire, typ, nvme.ResvKeys{Current: key(i)}); err == nil {
			k.holder, k.typ = i, typ
		}
	case holder == i:
		if err = ns.ReservationRelease(ctx, nvme.ResvRelease, k.typ, key(i)); err == nil {
			k.holder = -1
		}
	default:
		action := []nvme.ResvAction{nvme.ResvPreempt, nvme.ResvPreemptAndAbort}[k.rng.IntN(2)]
		if k.w.unordered && action == nvme.ResvPreemptAndAbort {
			defer k.clash(holder, i)()
		}
		if err = ns.ReservationAcquire(ctx, action, k.typ, nvme.ResvKeys{Current: key(i), Other: key(holder)}); err == nil {
			delete(k.registered, holder)
			k.holder = i
			if action == nvme.ResvPreemptAndAbort {
				old = holder
			}
		}
	}
	if err != nil {
		if errors.Is(err, nvme.StatusReservationConflict) {
			k.w.errorf("host %d: refused a change of reservations that it may make (holder %d, registered %v): %v", i, k.holder, k.registered, err)
		}
		k.sure = false
		return
	}
	k.note(old)
}

// clash has the host that is about to be preempted write to every block of the disk, which is slow, and the one that has
// preempted it do the same at once when then is called, while the disk is fast: what the first had sent is over, or it
// is found later. The disk executes requests in any order; otherwise nobody could tell.
func (k *keeper) clash(old, now int) (then func()) {
	d := k.w.disks[keptDisk]
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	begin := func(host int) (done chan struct{}) {
		done = make(chan struct{})
		c := &client{m: k.w.hosts[host], rng: rand.New(rand.NewPCG(k.rng.Uint64(), 0)), buf: make([]byte, 1<<17)}
		go func() {
			_ = c.write(ctx, rang{keptDisk, 0, d.blocks}, k.w.stamp()) // its path may be lost
			close(done)
		}()
		return done
	}
	d.faults.set(time.Second, 0)
	first := begin(old)
	time.Sleep(time.Millisecond) // until the disk has it
	return func() {
		d.faults.set(0, 0)
		<-begin(now)
		<-first
		cancel()
	}
}

// find asks a host who may do what. Whatever commands were lost are over: packets don't live that long.
func (k *keeper) find(ctx context.Context) {
	time.Sleep(time.Second)
	st, err := k.w.hosts[k.rng.IntN(len(k.w.hosts))].space(keptDisk).Reservations(ctx)
	if err != nil {
		return
	}
	k.registered, k.holder, k.typ, k.sure = map[int]bool{}, -1, st.Type, true
	for _, r := range st.Registrants {
		for _, m := range k.w.hosts {
			if r.HostID == m.id {
				k.registered[m.index] = true
				if r.Holder {
					k.holder = m.index
				}
			}
		}
	}
	k.note(-1)
}

// note tells the history what is denied to whom. Everything of a host whose commands were aborted is over.
func (k *keeper) note(aborted int) {
	if k.holder < 0 {
		return
	}
	denied := map[int]denial{}
	for _, m := range k.w.hosts {
		if m.index != k.holder && (!k.typ.RegistrantsOnly() || !k.registered[m.index]) {
			exclusive := k.typ == nvme.ResvExclusiveAccess || k.typ == nvme.ResvExclusiveAccessRegOnly
			denied[m.index] = denial{writes: true, reads: exclusive, old: m.index == aborted}
		}
	}
	k.w.histories[keptDisk].deny(denied)
}

// end releases what is held, so that all hosts can do everything. A host whose earlier commands a slow disk still has may
// have to try again, and may lose its paths over it.
func (k *keeper) end() error {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	k.allow()
	for {
		for k.sure = false; !k.sure; {
			if err := ctx.Err(); err != nil {
				return err
			}
			for _, m := range k.w.hosts {
				m.tend()
			}
			k.find(ctx)
		}
		k.allow()
		if k.holder < 0 {
			return nil
		}
		err := k.w.hosts[k.holder].space(keptDisk).ReservationRelease(ctx, nvme.ResvRelease, k.typ, key(k.holder))
		if err == nil {
			k.holder = -1
			return nil
		}
		k.w.logf("host %d can't release: %v", k.holder, err)
	}
}
