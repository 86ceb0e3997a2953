package target

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The hosts of the reservation tests: HostID{i}.
func resvHost(i int) nvme.HostID { return nvme.HostID{byte(i), 15: 1} }

// connectAs connects a host of its own.
func connectAs(t *testing.T, tg *Target, i int) *session {
	t.Helper()
	d := nvme.ConnectData{HostID: resvHost(i), CNTLID: nvme.CNTLIDDynamic, SubNQN: testNQN, HostNQN: fmt.Sprintf("nqn.2024-01.com.example:host%d", i)}
	s := &session{admin: dial(t, tg), io: dial(t, tg)}
	b, err := d.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.cntlid = nvme.ConnectResult(s.admin.must(connectCommand(0, 31, 0), b).DW0()).CNTLID()
	s.admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	d.CNTLID = s.cntlid
	b, _ = d.AppendTo(nil)
	s.io.must(connectCommand(1, 127, 0), b)
	return s
}

// resvOp is a reservation command of one host.
type resvOp struct {
	host   int
	cmd    nvme.Command
	keys   nvme.ResvKeys
	status nvme.Status
}

func registerAs(host int, a nvme.ResvAction, current, next uint64, st nvme.Status) resvOp {
	return resvOp{host, command(func(c *nvme.Command) { c.SetResvRegister(1, a, false, nvme.CPTPLKeep) }), nvme.ResvKeys{Current: current, Other: next}, st}
}

// ignoringKey makes a Reservation Register succeed whatever the host's key is (IEKEY).
func ignoringKey(o resvOp) resvOp {
	o.cmd.SetCDW(10, o.cmd.CDW10()|1<<3)
	return o
}

// persistAs registers a host, and makes the reservation persist through power loss.
func persistAs(host int, key uint64) resvOp {
	return resvOp{host, command(func(c *nvme.Command) { c.SetResvRegister(1, nvme.ResvRegister, false, nvme.CPTPLSet) }), nvme.ResvKeys{Other: key}, 0}
}

func acquireAs(host int, a nvme.ResvAction, kind nvme.ResvType, current, preempted uint64, st nvme.Status) resvOp {
	return resvOp{host, command(func(c *nvme.Command) { c.SetResvAcquire(1, a, kind) }), nvme.ResvKeys{Current: current, Other: preempted}, st}
}

func releaseAs(host int, a nvme.ResvAction, kind nvme.ResvType, current uint64, st nvme.Status) resvOp {
	return resvOp{host, command(func(c *nvme.Command) { c.SetResvRelease(1, a, kind) }), nvme.ResvKeys{Current: current}, st}
}

func (o resvOp) run(c *fakeConn) {
	c.t.Helper()
	b := o.keys.AppendTo(nil)
	if o.cmd.Opcode() == nvme.OpResvRelease {
		b = b[:8]
	}
	c.fails(o.cmd, b, o.status)
}

func report(c *fakeConn) (p nvme.ResvStatus) {
	c.t.Helper()
	b := make([]byte, 4096)
	c.must(command(func(c *nvme.Command) { c.SetResvReport(1, 4096) }), b)
	if err := p.Parse(b); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// accessOf returns what a host may do: "rw", "r" or nothing.
func accessOf(c *fakeConn) string {
	c.t.Helper()
	b := make([]byte, 512)
	var s string
	for op, name := range map[nvme.Opcode]string{nvme.OpRead: "r", nvme.OpWrite: "w"} {
		switch st := c.do(ioCommand(op, 0, 1, 0), b).Status() &^ nvme.StatusMore; st {
		case 0:
			s += name
		case resvConflict:
		default:
			c.t.Errorf("status %#x", uint16(st))
		}
	}
	if s == "wr" {
		s = "rw"
	}
	return s
}

// TestReservationTypes: which hosts may read and write under each type (figure "Command Behavior in the Presence of a
// Reservation"): the holder, another registrant, and a host that isn't one.
func TestReservationTypes(t *testing.T) {
	for kind, want := range map[nvme.ResvType][3]string{
		nvme.ResvWriteExclusive:         {"rw", "r", "r"},
		nvme.ResvExclusiveAccess:        {"rw", "", ""},
		nvme.ResvWriteExclusiveRegOnly:  {"rw", "rw", "r"},
		nvme.ResvExclusiveAccessRegOnly: {"rw", "rw", ""},
		nvme.ResvWriteExclusiveAllReg:   {"rw", "rw", "r"},
		nvme.ResvExclusiveAccessAllReg:  {"rw", "rw", ""},
	} {
		t.Run(kind.String(), func(t *testing.T) {
			tg := newTarget(t, newTestVolume(1<<20, 512))
			holder, other, none := connectAs(t, tg, 1), connectAs(t, tg, 2), connectAs(t, tg, 3)
			registerAs(1, nvme.ResvRegister, 0, 11, 0).run(holder.io)
			registerAs(2, nvme.ResvRegister, 0, 22, 0).run(other.io)
			acquireAs(1, nvme.ResvAcquire, kind, 11, 0, 0).run(holder.io)
			for i, s := range []*session{holder, other, none} {
				if got := accessOf(s.io); got != want[i] {
					t.Errorf("host %d may %q, want %q", i+1, got, want[i])
				}
			}
			if ns := tg.Snapshot().Subsystems[0].Namespaces[0]; ns.Reservation != kind || ns.Registrants != 2 {
				t.Errorf("snapshot has %v of %d registrants", ns.Reservation, ns.Registrants)
			}
			// What writes and what reads.
			b := make([]byte, 512)
			for _, tc := range []struct {
				cmd   nvme.Command
				write bool
			}{
				{ioCommand(nvme.OpCompare, 0, 1, 0), false},
				{ioCommand(nvme.OpVerify, 0, 1, 0), false},
				{ioCommand(nvme.OpWriteZeroes, 0, 1, 0), true},
				{command(func(c *nvme.Command) { c.SetFlush(1) }), true},
				{command(func(c *nvme.Command) { c.SetDSM(1, 1, nvme.DSMDeallocate) }), true},
			} {
				st := none.io.do(tc.cmd, b).Status() &^ nvme.StatusMore
				if refused := st == resvConflict; refused != (tc.write || want[2] == "") {
					t.Errorf("%#x: status %#x", tc.cmd[0], uint16(st))
				}
			}
			p := report(none.io)
			if p.Type != kind || len(p.Registrants) != 2 || !p.Registrants[0].Holder || p.Registrants[1].Holder != kind.AllRegistrants() ||
				p.Registrants[0].CNTLID != holder.cntlid || p.Registrants[1].Key != 22 || p.Registrants[1].HostID != resvHost(2) || p.Generation != 2 {
				t.Errorf("report %+v", p)
			}
			releaseAs(1, nvme.ResvRelease, kind, 11, 0).run(holder.io)
			if got := accessOf(none.io); got != "rw" {
				t.Errorf("after the release host 3 may %q", got)
			}
			for _, s := range []*session{holder, other, none} {
				s.close()
			}
		})
	}
}

// resvHistory is a history of commands, and what the report says at its end.
type resvHistory struct {
	name    string
	ops     []resvOp
	kind    nvme.ResvType
	holders []int
	keys    map[int]uint64
	gen     uint32
}

// threeRegister has each host register its key.
func threeRegister() []resvOp {
	return []resvOp{registerAs(1, nvme.ResvRegister, 0, 11, 0), registerAs(2, nvme.ResvRegister, 0, 22, 0), registerAs(3, nvme.ResvRegister, 0, 33, 0)}
}

// resvHistories are the histories without preemption.
func resvHistories() []resvHistory {
	const (
		ok       = nvme.StatusSuccess
		invalid  = nvme.StatusInvalidField | dnr
		we       = nvme.ResvWriteExclusive
		ea       = nvme.ResvExclusiveAccess
		wero     = nvme.ResvWriteExclusiveRegOnly
		wear     = nvme.ResvWriteExclusiveAllReg
		register = nvme.ResvRegister
		acquire  = nvme.ResvAcquire
	)
	three := threeRegister()
	return []resvHistory{
		{"register twice", []resvOp{registerAs(1, register, 0, 11, ok), registerAs(1, register, 0, 11, ok), registerAs(1, register, 11, 12, resvConflict),
			registerAs(1, register, 11, 0, invalid)}, 0, nil, map[int]uint64{1: 11}, 2},
		{"register zero", []resvOp{registerAs(1, register, 0, 0, invalid)}, 0, nil, nil, 0},
		{"replace", []resvOp{registerAs(1, register, 0, 11, ok), registerAs(1, nvme.ResvReplace, 10, 12, resvConflict),
			registerAs(1, nvme.ResvReplace, 11, 12, ok), registerAs(2, nvme.ResvReplace, 0, 5, resvConflict)}, 0, nil, map[int]uint64{1: 12}, 2},
		{"unregister", []resvOp{registerAs(1, register, 0, 11, ok), registerAs(1, nvme.ResvUnregister, 10, 0, resvConflict),
			registerAs(1, nvme.ResvUnregister, 11, 0, ok), registerAs(1, nvme.ResvUnregister, 11, 0, resvConflict)}, 0, nil, nil, 2},
		{"without the key", []resvOp{registerAs(1, register, 0, 11, ok), ignoringKey(registerAs(1, nvme.ResvReplace, 0, 12, ok)),
			registerAs(2, register, 0, 22, ok), ignoringKey(registerAs(1, nvme.ResvUnregister, 0, 0, ok)),
			ignoringKey(registerAs(1, nvme.ResvUnregister, 0, 0, resvConflict))}, 0, nil, map[int]uint64{2: 22}, 4},
		{"without being registered", []resvOp{ignoringKey(registerAs(3, nvme.ResvReplace, 0, 0, invalid)), ignoringKey(registerAs(3, nvme.ResvReplace, 5, 33, ok)),
			acquireAs(3, acquire, we, 33, 0, ok)}, we, []int{3}, map[int]uint64{3: 33}, 1},
		{"acquire unregistered", []resvOp{acquireAs(1, acquire, we, 0, 0, resvConflict)}, 0, nil, nil, 0},
		{"acquire with a wrong key", append(three[:1:1], acquireAs(1, acquire, we, 12, 0, resvConflict)), 0, nil, map[int]uint64{1: 11}, 1},
		{"acquire again", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), acquireAs(1, acquire, we, 11, 0, ok),
			acquireAs(1, acquire, ea, 11, 0, resvConflict), acquireAs(2, acquire, we, 22, 0, resvConflict)), we, []int{1}, map[int]uint64{1: 11, 2: 22}, 2},
		{"all registrants hold", append(three[:2:2], acquireAs(1, acquire, wear, 11, 0, ok), acquireAs(2, acquire, wear, 22, 0, ok)),
			wear, []int{1, 2}, map[int]uint64{1: 11, 2: 22}, 2},
		{"release of another's", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), releaseAs(2, nvme.ResvRelease, we, 22, ok),
			releaseAs(3, nvme.ResvRelease, we, 33, resvConflict), releaseAs(1, nvme.ResvRelease, ea, 11, invalid)), we, []int{1}, map[int]uint64{1: 11, 2: 22}, 2},
		{"release with a wrong key", append(three[:1:1], acquireAs(1, acquire, we, 11, 0, ok), releaseAs(1, nvme.ResvRelease, we, 12, resvConflict),
			releaseAs(1, nvme.ResvClear, 0, 12, resvConflict)), we, []int{1}, map[int]uint64{1: 11}, 1},
		{"another unregisters", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), registerAs(2, nvme.ResvUnregister, 22, 0, ok)),
			we, []int{1}, map[int]uint64{1: 11}, 3},
		{"release", append(three[:1:1], acquireAs(1, acquire, we, 11, 0, ok), releaseAs(1, nvme.ResvRelease, we, 11, ok)), 0, nil, map[int]uint64{1: 11}, 1},
		{"clear", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), releaseAs(2, nvme.ResvClear, 0, 22, ok)), 0, nil, nil, 3},
		{"holder unregisters", append(three[:2:2], acquireAs(1, acquire, wero, 11, 0, ok), registerAs(1, nvme.ResvUnregister, 11, 0, ok)),
			0, nil, map[int]uint64{2: 22}, 3},
		{"one of all unregisters", append(three[:2:2], acquireAs(1, acquire, wear, 11, 0, ok), registerAs(1, nvme.ResvUnregister, 11, 0, ok)),
			wear, []int{2}, map[int]uint64{2: 22}, 3},
		{"the last of all unregisters", append(three[:1:1], acquireAs(1, acquire, wear, 11, 0, ok), registerAs(1, nvme.ResvUnregister, 11, 0, ok)), 0, nil, nil, 2},
	}
}

func preemptHistories() []resvHistory {
	const (
		ok      = nvme.StatusSuccess
		invalid = nvme.StatusInvalidField | dnr
		we      = nvme.ResvWriteExclusive
		ea      = nvme.ResvExclusiveAccess
		wear    = nvme.ResvWriteExclusiveAllReg
		acquire = nvme.ResvAcquire
		preempt = nvme.ResvPreempt
	)
	three := threeRegister()
	// alike are histories with two hosts that have the same key. A host that preempts that key loses its own
	// registration as well, unless it holds the reservation then.
	alike := []resvOp{registerAs(1, nvme.ResvRegister, 0, 11, ok), registerAs(2, nvme.ResvRegister, 0, 11, ok), registerAs(3, nvme.ResvRegister, 0, 33, ok)}
	return []resvHistory{
		{"preempt the holder", append(three[:3:3], acquireAs(1, acquire, we, 11, 0, ok), acquireAs(2, preempt, ea, 22, 11, ok)),
			ea, []int{2}, map[int]uint64{2: 22, 3: 33}, 4},
		{"preempt a registrant", append(three[:3:3], acquireAs(1, acquire, we, 11, 0, ok), acquireAs(2, preempt, ea, 22, 33, ok)),
			we, []int{1}, map[int]uint64{1: 11, 2: 22}, 4},
		{"preempt nobody", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), acquireAs(2, preempt, ea, 22, 99, resvConflict)),
			we, []int{1}, map[int]uint64{1: 11, 2: 22}, 2},
		{"preempt with no key", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), acquireAs(2, preempt, ea, 22, 0, invalid)),
			we, []int{1}, map[int]uint64{1: 11, 2: 22}, 2},
		{"preempt a holder whose key is zero", append(three[:3:3], registerAs(1, nvme.ResvReplace, 11, 0, ok), acquireAs(1, acquire, we, 0, 0, ok),
			acquireAs(2, preempt, ea, 22, 0, ok)), ea, []int{2}, map[int]uint64{2: 22, 3: 33}, 5},
		{"preempt without a reservation", append(three[:3:3], acquireAs(1, preempt, we, 11, 33, ok)), 0, nil, map[int]uint64{1: 11, 2: 22}, 4},
		{"preempt those with one's own key, without a reservation", append(alike[:3:3], acquireAs(1, preempt, we, 11, 11, ok)), 0, nil, map[int]uint64{3: 33}, 4},
		{"preempt those with one's own key, another holds", append(alike[:3:3], acquireAs(3, acquire, we, 33, 0, ok), acquireAs(1, preempt, ea, 11, 11, ok)),
			we, []int{3}, map[int]uint64{3: 33}, 4},
		{"preempt those with one's own key, all hold", append(alike[:3:3], acquireAs(3, acquire, wear, 33, 0, ok), acquireAs(1, preempt, ea, 11, 11, ok)),
			wear, []int{3}, map[int]uint64{3: 33}, 4},
		{"preempt all who hold, oneself too", append(alike[:2:2], acquireAs(1, acquire, wear, 11, 0, ok), acquireAs(1, preempt, ea, 11, 11, ok)), 0, nil, nil, 3},
		{"preempt oneself", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), acquireAs(1, preempt, ea, 11, 11, ok)),
			ea, []int{1}, map[int]uint64{1: 11, 2: 22}, 3},
		{"preempt all registrants", append(three[:3:3], acquireAs(1, acquire, wear, 11, 0, ok), acquireAs(2, preempt, ea, 22, 0, ok)),
			ea, []int{2}, map[int]uint64{2: 22}, 4},
		{"preempt one of all registrants", append(three[:3:3], acquireAs(1, acquire, wear, 11, 0, ok), acquireAs(2, preempt, ea, 22, 33, ok)),
			wear, []int{1, 2}, map[int]uint64{1: 11, 2: 22}, 4},
		{"preempt and abort", append(three[:2:2], acquireAs(1, acquire, we, 11, 0, ok), acquireAs(2, nvme.ResvPreemptAndAbort, we, 22, 11, ok)),
			we, []int{2}, map[int]uint64{2: 22}, 3},
	}
}

// TestReservationCommands runs histories: each command with its status, and what the report says
// at the end.
func TestReservationCommands(t *testing.T) {
	for _, h := range append(resvHistories(), preemptHistories()...) {
		t.Run(h.name, h.test)
	}
}

func (h resvHistory) test(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	hosts := map[int]*session{1: connectAs(t, tg, 1), 2: connectAs(t, tg, 2), 3: connectAs(t, tg, 3)}
	for _, op := range h.ops {
		op.run(hosts[op.host].io)
	}
	p := report(hosts[3].io)
	keys, holders := map[int]uint64{}, 0
	for _, r := range p.Registrants {
		keys[int(r.HostID[0])] = r.Key
		if r.Holder {
			holders++
		}
	}
	if p.Type != h.kind || p.Generation != h.gen || !maps.Equal(keys, h.keys) || holders != len(h.holders) {
		t.Errorf("report %+v", p)
	}
	v := tg.Subsystem(testNQN).namespace(1).resv.now.Load()
	for _, i := range h.holders {
		if !v.holds(resvHost(i)) {
			t.Errorf("host %d doesn't hold it", i)
		}
	}
	for _, s := range hosts {
		s.close()
	}
}

// TestPreemptAndAbort: when it is answered, nothing of the preempted host is on its way to the volume any more.
func TestPreemptAndAbort(t *testing.T) {
	v, second := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512)
	tg := newTarget(t, v, second)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	registerAs(1, nvme.ResvRegister, 0, 11, 0).run(a.io)
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
	acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusive, 11, 0, 0).run(a.io)
	v.setHold(true)
	write := a.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 512))
	<-v.arrived
	verify := a.io.start(ioCommand(nvme.OpVerify, 0, 2048, 0), nil)
	<-v.arrived
	second.setHold(true)
	elsewhere := a.io.start(command(func(c *nvme.Command) { c.SetIO(nvme.OpVerify, 2, 0, 2048, 0) }), nil)
	<-second.arrived
	third := connectAs(t, tg, 3)
	registerAs(3, nvme.ResvRegister, 0, 33, 0).run(third.io)
	others := third.io.start(ioCommand(nvme.OpVerify, 0, 2048, 0), nil)
	<-v.arrived
	op := acquireAs(2, nvme.ResvPreemptAndAbort, nvme.ResvWriteExclusive, 22, 11, 0)
	preempt := b.io.start(op.cmd, op.keys.AppendTo(nil))
	if preempt.answered() {
		t.Error("answered while a write of the preempted host is with the volume")
	}
	v.release()
	if st := preempt.wait().Status(); st != 0 || !write.answered() || !verify.answered() {
		t.Errorf("status %#x; write ended: %v, verify: %v", uint16(st), write.answered(), verify.answered())
	}
	if st := verify.wait().Status().Code(); st != nvme.StatusAbortPreempt {
		t.Errorf("Verify of the preempted host: %#x", uint16(st))
	}
	endsFused(t, "Verify of another host", others, nvme.StatusSuccess)
	second.release()
	endsFused(t, "Verify of another namespace", elsewhere, nvme.StatusSuccess)
	third.close()
	if accessOf(a.io) != "r" || accessOf(b.io) != "rw" {
		t.Error("the reservation isn't the other's")
	}
	a.close()
	b.close()
}

// TestPreemptDeadHost: a host that is preempted because it died in the middle of writes doesn't keep the namespace from
// the others until its connection is found dead, and its writes don't come late. If the volume hangs, no connection is
// ended for it.
func TestPreemptDeadHost(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
			dead, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
			registerAs(1, nvme.ResvRegister, 0, 11, 0).run(dead.io)
			registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
			v.setHold(true)
			dead.io.holdPull = !hangs
			write, data := ioWrite(1, 7)
			lost := dead.io.start(write, data)
			op := acquireAs(2, nvme.ResvPreemptAndAbort, nvme.ResvWriteExclusive, 22, 11, 0)
			preempt := b.io.start(op.cmd, op.keys.AppendTo(nil))
			time.Sleep(10 * time.Second)
			if hangs {
				if lost.answered() || preempt.answered() || dead.admin.q.ended() {
					t.Error("it isn't waited for the volume")
				}
				v.release()
			} else if !preempt.answered() || !dead.admin.q.ended() {
				t.Errorf("after 10 s the namespace isn't the others': it has %d users", tg.Subsystem(testNQN).namespace(1).users())
			}
			v.release()
			preempt.wait()
			if (v.data[0] == 7) != hangs {
				t.Error("the write of the preempted host came late, or not at all")
			}
			b.close()
			if hangs {
				dead.close()
			} else {
				dead.lose()
			}
		})
	}
}

// TestPreemptHostThatDies: nor does a host with a command that its volume took long to answer, and with one whose data
// doesn't come.
func TestPreemptHostThatDies(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		dead, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
		registerAs(1, nvme.ResvRegister, 0, 11, 0).run(dead.io)
		registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
		v.setHold(true)
		slow := dead.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
		dead.io.holdPull = true
		write, data := ioWrite(1, 7)
		dead.io.start(write, data)
		op := acquireAs(2, nvme.ResvPreemptAndAbort, nvme.ResvWriteExclusive, 22, 11, 0)
		preempt := b.io.start(op.cmd, op.keys.AppendTo(nil))
		time.Sleep(3 * preemptPatience)
		if slow.answered() || preempt.answered() || dead.admin.q.ended() {
			t.Error("it isn't waited for the volume")
		}
		v.release()
		time.Sleep(3 * preemptPatience)
		if !slow.answered() || !preempt.answered() || !dead.admin.q.ended() {
			t.Errorf("the namespace isn't the others': it has %d users", tg.Subsystem(testNQN).namespace(1).users())
			dead.io.come()
		}
		preempt.wait()
		b.close()
		dead.lose()
	})
}

// TestPreemptIdleHost: a preempted host that uses nothing of the namespace keeps its connections, however long Preempt
// and Abort waits for another host.
func TestPreemptIdleHost(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		idle, b, slow := connectAs(t, tg, 1), connectAs(t, tg, 2), connectAs(t, tg, 3)
		for i, s := range []*session{idle, b, slow} {
			registerAs(i+1, nvme.ResvRegister, 0, uint64(11*(i+1)), 0).run(s.io)
		}
		slow.io.holdPull = true
		write := slow.writes(1, 7)
		op := acquireAs(2, nvme.ResvPreemptAndAbort, nvme.ResvWriteExclusiveRegOnly, 22, 11, 0)
		preempt := b.io.start(op.cmd, op.keys.AppendTo(nil))
		time.Sleep(10 * preemptPatience)
		if preempt.answered() || idle.admin.q.ended() {
			t.Errorf("answered: %v; the idle host is gone: %v", preempt.answered(), idle.admin.q.ended())
		}
		slow.io.come()
		endsFused(t, "write of the slow host", write, nvme.StatusSuccess)
		endsFused(t, "Preempt and Abort", preempt, nvme.StatusSuccess)
		for _, s := range []*session{idle, b, slow} {
			s.close()
		}
	})
}

// TestReservationFields: wrong fields, with status and place.
func TestReservationFields(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	const invalid = nvme.StatusInvalidField | dnr
	keys := make([]byte, 16)
	for _, tc := range []struct {
		name   string
		cmd    nvme.Command
		data   []byte
		status nvme.Status
		loc    uint16
	}{
		{"RREGA 3", command(func(c *nvme.Command) { c.SetResvRegister(1, 3, false, 0) }), keys, invalid, 40},
		{"CPTPL 1", command(func(c *nvme.Command) { c.SetResvRegister(1, 0, false, 1) }), keys, invalid, 43 | 6<<8},
		{"PTPL without a store", command(func(c *nvme.Command) { c.SetResvRegister(1, 0, false, nvme.CPTPLSet) }), keys, invalid, 43 | 6<<8},
		{"register, 8 bytes", command(func(c *nvme.Command) { c.SetResvRegister(1, 0, false, 0) }), keys[:8], nvme.StatusSGLLengthInvalid | dnr, 24},
		{"RACQA 3", command(func(c *nvme.Command) { c.SetResvAcquire(1, 3, 1) }), keys, invalid, 40},
		{"RTYPE 0", command(func(c *nvme.Command) { c.SetResvAcquire(1, 0, 0) }), keys, invalid, 41},
		{"RTYPE 7", command(func(c *nvme.Command) { c.SetResvAcquire(1, 0, 7) }), keys, invalid, 41},
		{"acquire, IEKEY", command(func(c *nvme.Command) { c.SetResvAcquire(1, 0|8, 1); c.SetCDW(10, 0x108) }), keys, invalid, 40 | 3<<8},
		{"RRELA 2", command(func(c *nvme.Command) { c.SetResvRelease(1, 2, 1) }), keys[:8], invalid, 40},
		{"release, 16 bytes", command(func(c *nvme.Command) { c.SetResvRelease(1, 0, 1) }), keys, nvme.StatusSGLLengthInvalid | dnr, 24},
		{"short host identifiers", command(func(c *nvme.Command) { c.SetResvReport(1, 64); c.SetCDW(11, 0) }), make([]byte, 64), nvme.StatusHostIDInconsistent | dnr, 44},
		{"report of more than MDTS", command(func(c *nvme.Command) { c.SetResvReport(1, 2<<20) }), make([]byte, 64), invalid, 40},
		{"report, 32 bytes", command(func(c *nvme.Command) { c.SetResvReport(1, 64) }), make([]byte, 32), nvme.StatusSGLLengthInvalid | dnr, 24},
		{"no namespace", command(func(c *nvme.Command) { c.SetResvReport(7, 64) }), make([]byte, 64), nvme.StatusInvalidNamespace | dnr, 4},
	} {
		s.io.fails(tc.cmd, tc.data, tc.status)
		if e := lastError(s.admin); e.Location != tc.loc {
			t.Errorf("%s: location %#x, want %#x", tc.name, e.Location, tc.loc)
		}
	}
}

// TestReservationWithoutHostID: a host with a host identifier of zero can't hold a reservation, and controllers say so
// (NVMe base 2.1, section 8.1.22, and RHII of Identify Controller).
func TestReservationWithoutHostID(t *testing.T) {
	s := &session{}
	tg := newTarget(t, newTestVolume(1<<20, 512))
	data := func(cntlid uint16) []byte {
		b := connectData(t, cntlid, testNQN)
		clear(b[:16])
		return b
	}
	s.admin, s.io = dial(t, tg), dial(t, tg)
	cqe := s.admin.must(connectCommand(0, 31, 0), data(nvme.CNTLIDDynamic))
	s.admin.must(ccOn, nil)
	s.io.must(connectCommand(1, 31, 0), data(nvme.ConnectResult(cqe.DW0()).CNTLID()))
	for _, op := range []resvOp{
		registerAs(0, nvme.ResvRegister, 0, 11, nvme.StatusHostIDNotInitialized|dnr),
		acquireAs(0, nvme.ResvAcquire, nvme.ResvWriteExclusive, 11, 0, nvme.StatusHostIDNotInitialized|dnr),
		releaseAs(0, nvme.ResvRelease, nvme.ResvWriteExclusive, 11, nvme.StatusHostIDNotInitialized|dnr),
	} {
		op.run(s.io)
	}
	s.io.fails(command(func(c *nvme.Command) { c.SetResvReport(1, 64) }), make([]byte, 64), nvme.StatusHostIDNotInitialized|dnr)
	var id nvme.IdentifyController
	page := make([]byte, nvme.PageSize)
	s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	if err := id.Parse(page); err != nil || id.CTRATT&(1<<18) == 0 {
		t.Errorf("CTRATT %#x, want bit 18 (%v)", id.CTRATT, err)
	}
	s.close()
}

// TestFlushOfReserved: a Flush of all namespaces conflicts with a reservation on any of them that keeps the host from
// writing, as a Flush of that one does (NVMe base, "Reservations").
func TestFlushOfReserved(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, newTestVolume(1<<20, 512), v)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	for _, op := range []resvOp{registerAs(1, nvme.ResvRegister, 0, 11, 0), acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusive, 11, 0, 0)} {
		op.cmd.SetNSID(2)
		op.run(a.io)
	}
	flush := func(nsid uint32) nvme.Command { return command(func(c *nvme.Command) { c.SetFlush(nsid) }) }
	b.io.must(flush(1), nil)
	b.io.fails(flush(2), nil, resvConflict)
	b.io.fails(flush(nvme.NSIDAll), nil, resvConflict)
	if ops := v.ops(); len(ops) != 0 {
		t.Errorf("the volume saw %v", ops)
	}
	a.io.must(flush(2), nil)
	a.io.must(flush(nvme.NSIDAll), nil)
}

// TestPreemptAbortsNothing: Preempt leaves commands that are under way to end, unlike Preempt and Abort.
func TestPreemptAbortsNothing(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	registerAs(1, nvme.ResvRegister, 0, 11, 0).run(a.io)
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(b.io)
	acquireAs(1, nvme.ResvAcquire, nvme.ResvExclusiveAccess, 11, 0, 0).run(a.io)
	v.setHold(true)
	verify := a.io.start(ioCommand(nvme.OpVerify, 0, 256, 0), nil) // of several operations
	<-v.arrived
	acquireAs(2, nvme.ResvPreempt, nvme.ResvExclusiveAccess, 22, 11, 0).run(b.io)
	v.release()
	if st := verify.wait().Status(); !st.OK() {
		t.Errorf("status %#x", uint16(st))
	}
}
