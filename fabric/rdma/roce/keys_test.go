package roce

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestMemoryWindow: a window's key opens its range to the peer of its queue pair, from the bind until the invalidation,
// and never again.
func TestMemoryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		w, err := p.b.pd.AllocMW()
		check(t, err)
		bind := func(off, n int, access verbs.Access) uint32 {
			key := w.RKey()
			p.b.post(verbs.SendWR{
				WRID: 1, Opcode: verbs.WRBindMW, MW: w,
				Bind: verbs.MWBind{MR: p.b.mr, Addr: p.b.mr.Addr() + uint64(off), Length: uint64(n), Access: access},
			})
			p.b.want(1, verbs.WCSuccess)
			if w.RKey() != key {
				t.Error("binding changed the key")
			}
			return key
		}
		write := func(off, n int, key uint32) {
			p.a.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, n), RemoteAddr: p.b.mr.Addr() + uint64(off), RKey: key})
		}
		fill(p.a.buf, 1)
		keys := map[uint32]bool{}
		for i := range 50 {
			key := bind(1000*i, 1000, verbs.AccessRemoteWrite)
			if keys[key] || key == 0 {
				t.Fatalf("key %#x again", key)
			}
			keys[key] = true
			write(1000*i, 1000, key)
			p.a.want(2, verbs.WCSuccess)
			if i%2 == 0 {
				p.b.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRLocalInv, InvalidateRKey: key})
				p.b.want(3, verbs.WCSuccess)
			} else {
				p.b.recv(4)
				p.a.post(verbs.SendWR{WRID: 5, Opcode: verbs.WRSendWithInv, InvalidateRKey: key})
				p.a.want(5, verbs.WCSuccess)
				if wc := p.b.want(4, verbs.WCSuccess); wc.InvalidatedRKey != key {
					t.Errorf("completion %+v", wc)
				}
			}
		}
		key := bind(0, 100, verbs.AccessRemoteWrite)
		wantErr(t, "deregister under a window", p.b.mr.Dereg(), verbs.ErrBusy)
		p.b.post(verbs.SendWR{WRID: 3, Opcode: verbs.WRLocalInv, InvalidateRKey: key})
		p.b.want(3, verbs.WCSuccess)
		write(0, 1, key)
		p.a.want(2, verbs.WCRemAccessErr)
		check(t, w.Dealloc())
		wantErr(t, "again", w.Dealloc(), verbs.ErrClosed)
	})
}

// TestWindowOutlivesItsQueuePair: a binding ends with its queue pair: afterwards the region may be deregistered, and
// the window bound again.
func TestWindowOutlivesItsQueuePair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		m := p.region(p.b.pd, allAccess)
		wr := p.bind(p.b.pd, m, m.Addr(), 10, verbs.AccessRemoteRead)
		p.b.post(wr)
		p.b.want(0, verbs.WCSuccess)
		old := wr.MW.RKey()
		check(t, p.b.qp.Destroy())
		check(t, m.Dereg())
		p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
		p.connect(p.a, p.b)
		wr.Bind.MR, wr.Bind.Addr = p.b.mr, p.b.mr.Addr()
		p.b.post(wr)
		p.b.want(0, verbs.WCSuccess)
		p.a.post(p.readFrom(p.b.mr.Addr(), 10, wr.MW.RKey()))
		p.a.want(0, verbs.WCSuccess)
		p.a.post(p.readFrom(p.b.mr.Addr(), 10, old))
		p.a.want(0, verbs.WCRemAccessErr)
	})
}

// TestBindOfAnEndedKey: a window is bound under the key that it had when the bind was posted, or not at all.
func TestBindOfAnEndedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		wr := p.bind(p.b.pd, p.b.mr, p.b.mr.Addr(), 10, verbs.AccessRemoteRead)
		p.b.post(wr, verbs.SendWR{WRID: 1, Opcode: verbs.WRLocalInv, InvalidateRKey: wr.MW.RKey()}, wr)
		p.b.want(0, verbs.WCSuccess)
		p.b.want(1, verbs.WCSuccess)
		p.b.want(0, verbs.WCMWBindErr)
	})
}

// TestResetEndsOwnWindows: a queue pair that is reset ends its own bindings, whichever of them ended before, and looks
// at no other key of the device, of which there may be a hundred thousand.
func TestResetEndsOwnWindows(t *testing.T) {
	const windows = 5
	for ended := range windows {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			foreign := p.foreignWindow(p.a)
			var keys []uint32
			for range windows {
				wr := p.bind(p.a.pd, p.a.mr, p.a.mr.Addr(), 10, verbs.AccessRemoteRead)
				p.a.post(wr)
				p.a.want(0, verbs.WCSuccess)
				keys = append(keys, wr.MW.RKey())
			}
			p.a.post(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: keys[ended]})
			p.a.want(0, verbs.WCSuccess)
			inside(p.a, func(q *qp) any {
				untouchable := &region{key: q.d.rkeys.reserve(), pd: q.pd, qp: q} // it has no window whose binding could end
				q.d.rkeys.open(untouchable)
				return nil
			})
			check(t, p.a.qp.Modify(verbs.QPAttr{State: verbs.Reset}))
			opens := func(key uint32) bool {
				return inside(p.a, func(q *qp) bool { return q.d.rkeys.lookup(key) != nil })
			}
			for i, key := range keys {
				if opens(key) {
					t.Errorf("the key of window %d still opens something", i)
				}
			}
			if !opens(foreign) {
				t.Error("the binding of another queue pair has ended")
			}
			if n := inside(p.a, func(*qp) int { return p.a.mr.(*mr).windows }); n != 1 {
				t.Errorf("%d windows are bound to the region, want that of the other queue pair", n)
			}
		})
	}
}

// TestReadOnlyWindow: a window for reading only doesn't need writable memory.
func TestReadOnlyWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		m := p.region(p.b.pd, verbs.AccessMWBind)
		wr := p.bind(p.b.pd, m, m.Addr(), 10, verbs.AccessRemoteRead)
		p.b.post(wr)
		p.b.want(0, verbs.WCSuccess)
		p.a.post(p.readFrom(m.Addr(), 10, wr.MW.RKey()))
		p.a.want(0, verbs.WCSuccess)
	})
}

// TestWindowFaults: a window's key opens nothing outside its range, for another access or on another queue pair.
func TestWindowFaults(t *testing.T) {
	for name, wr := range map[string]func(p *pair, key uint32) verbs.SendWR{
		"before": func(p *pair, key uint32) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 99, RKey: key}
		},
		"behind": func(p *pair, key uint32) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 199, RKey: key}
		},
		"access": func(p *pair, key uint32) verbs.SendWR {
			return verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 100, RKey: key}
		},
		"other queue pair": func(p *pair, key uint32) verbs.SendWR {
			p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
			p.connect(p.a, p.b)
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 100, RKey: key}
		},
		"queue pair destroyed": func(p *pair, key uint32) verbs.SendWR {
			check(p.t, p.b.qp.Destroy())
			p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
			p.connect(p.a, p.b)
			return verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: p.a.sge(0, 2), RemoteAddr: p.b.mr.Addr() + 100, RKey: key}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, pairConfig{})
				w, err := p.b.pd.AllocMW()
				check(t, err)
				key := w.RKey()
				p.b.post(verbs.SendWR{
					WRID: 1, Opcode: verbs.WRBindMW, MW: w,
					Bind: verbs.MWBind{MR: p.b.mr, Addr: p.b.mr.Addr() + 100, Length: 100, Access: verbs.AccessRemoteWrite},
				})
				p.b.want(1, verbs.WCSuccess)
				p.a.post(wr(p, key))
				p.a.want(0, verbs.WCRemAccessErr)
			})
		})
	}
}

// TestRKeyTable compares the table with a map.
func TestRKeyTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	table := newRKeyTable()
	model := map[uint32]*region{}
	var keys []uint32
	for i := range 40000 {
		if len(keys) < 1500 && r.IntN(2) == 0 || len(keys) == 0 {
			reg := &region{key: table.reserve()}
			if r.IntN(2) == 0 {
				// As a collision that randomness would rarely make.
				if k := reg.key&^0xffff | 0x1234 + r.Uint32N(4); table.lookup(k) == nil {
					table.remove(reg.key)
					table.take(k)
					reg.key = k
				}
			}
			if table.lookup(reg.key) != nil {
				t.Fatalf("step %d: key %#x opens something already", i, reg.key)
			}
			table.open(reg)
			model[reg.key] = reg
			keys = append(keys, reg.key)
		} else {
			j := r.IntN(len(keys))
			table.remove(keys[j])
			delete(model, keys[j])
			keys[j] = keys[len(keys)-1]
			keys = keys[:len(keys)-1]
		}
		if k := r.Uint32(); table.lookup(k) != model[k] {
			t.Fatalf("step %d: key %#x", i, k)
		}
		if len(keys) > 0 {
			if k := keys[r.IntN(len(keys))]; table.lookup(k) != model[k] {
				t.Fatalf("step %d: key %#x", i, k)
			}
		}
	}
	if table.used != len(model) {
		t.Errorf("%d entries, want %d", table.used, len(model))
	}
}

// TestWindowKeysDiffer: no two windows that wait to be bound have the same key, even if the generator repeats itself.
func TestWindowKeysDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		random := &p.a.dev.rkeys.random
		repeat := func() {
			for i := range random.buf {
				random.buf[i] = 0x11
			}
			random.left = len(random.buf)
		}
		repeat()
		a, b := bindWindow(p.a, 0, 64), bindWindow(p.a, 64, 64)
		repeat()
		for id, key := range []uint32{a, b} { // each draws its next key
			p.a.post(verbs.SendWR{WRID: uint64(id), Opcode: verbs.WRLocalInv, InvalidateRKey: key})
			p.a.want(uint64(id), verbs.WCSuccess)
		}
		c := bindWindow(p.a, 0, 64)
		if a == b || c == a || c == b {
			t.Errorf("keys %#x, %#x, %#x", a, b, c)
		}
	})
}

// TestKeysOfNothing: the key of a region that is gone opens nothing to the peer, and the keys of regions and windows
// that are gone take no place in the table of keys.
func TestKeysOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{})
		s := r.dev
		used := s.dev.rkeys.used
		for range 10 {
			w, err := s.pd.AllocMW()
			check(t, err)
			w.RKey()
			check(t, w.Dealloc())
			w, err = s.pd.AllocMW() // and one that never gets a key
			check(t, err)
			check(t, w.Dealloc())
			if key := w.RKey(); key != 0 {
				t.Errorf("a window that is gone has key %#x", key)
			}
		}
		m, err := s.pd.RegMR(make([]byte, 256), verbs.AccessRemoteRead)
		check(t, err)
		read := func(psn int) *wire.Packet {
			p := r.read(psn, 0, 256)
			p.RETH.VA, p.RETH.RKey = m.Addr(), m.RKey()
			return p
		}
		r.send(read(100))
		r.expect("RC_RDMA_READ_RESPONSE_ONLY 100 +256")
		check(t, m.Dereg())
		if n := s.dev.rkeys.used; n != used {
			t.Errorf("%d keys are in use, want %d as before", n, used)
		}
		r.send(read(101))
		r.expect("NAK remote access error 101 msn 1")
	})
}

func TestLKeyReuse(t *testing.T) {
	var table lkeyTable
	a := new(mr)
	table.insert(a)
	old := a.lkey
	table.remove(old)
	b := new(mr)
	table.insert(b)
	if table.lookup(old) != nil || table.lookup(b.lkey) != b || old>>8 != b.lkey>>8 {
		t.Errorf("keys %#x, %#x", old, b.lkey)
	}
}

// TestRegionsApart: between two memory regions there are addresses that no key opens.
func TestRegionsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, pairConfig{})
		var end uint64
		for _, n := range []int{1, pageSize, pageSize + 1, 1} {
			m, err := p.a.pd.RegMR(make([]byte, n), verbs.AccessLocalWrite)
			check(t, err)
			if m.Addr() < end+pageSize {
				t.Errorf("a region begins at %#x, the one before ends at %#x", m.Addr(), end)
			}
			end = m.Addr() + uint64(n)
		}
	})
}

func BenchmarkRKeyLookup(b *testing.B) {
	table := newRKeyTable()
	var keys [1024]uint32
	for i := range keys {
		r := &region{key: table.reserve()}
		table.open(r)
		keys[i] = r.key
	}
	b.ReportAllocs()
	for i := range b.N {
		if table.lookup(keys[i&1023]) == nil {
			b.Fatal("lost")
		}
	}
}

func BenchmarkWindowBind(b *testing.B) {
	table := newRKeyTable()
	var regions [256]region
	b.ReportAllocs()
	for i := range b.N {
		r := &regions[i&255]
		if r.key != 0 {
			table.remove(r.key)
		}
		r.key = table.reserve()
		table.open(r)
	}
}
