package target

import (
	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// formatStep is how many bytes one operation of Format zeroes, so that Format can be aborted in between.
const formatStep = 1 << 30

// format executes Format NVM: all blocks read as zeroes afterwards. The LBA format of a namespace can't be changed.
// Format has the namespace alone; commands that hosts send meanwhile wait.
func (r *Request) format() {
	ns := r.engine.q.ctrl.namespace(r.Cmd.NSID())
	switch {
	case !r.use(ns): // or for all namespaces, which FNA excludes
		r.failNSID()
	case r.Cmd.FormatLBAF() != ns.format():
		r.fail(nvme.StatusInvalidFormat, nvme.FormatOffLBAF)
	case r.Cmd.FormatPI() != 0:
		r.fail(nvme.StatusInvalidFormat, nvme.FormatOffPI)
	case r.Cmd.FormatSES() > nvme.EraseUser:
		r.fail(nvme.StatusInvalidField, nvme.FormatOffSES)
	case r.allowed(ns.state.Load()) && r.writable():
		r.unuse()
		ns.exclude(r, func() { r.runFormat(ns) })
	}
}

// runFormat zeroes the namespace, which r has alone. While r waited for that, its permission may have changed: a
// command that was under way may have acquired a reservation, or protected the namespace.
func (r *Request) runFormat(ns *Namespace) {
	e := &r.engine
	if !r.use(ns) {
		r.fail(nvme.StatusInvalidNamespace, offNSID)
		ns.include()
		return
	}
	if !r.allowed(ns.state.Load()) || !r.writable() {
		ns.include()
		return
	}
	ns.sub.noteEvent(nvme.PersistentFormatStart, e.q.ctrl, &nvme.FormatStartEvent{NSID: ns.nsid, FNA: nvme.FNANoBroadcast, CDW10: r.Cmd.CDW10()})
	e.chainDone = (*Request).formatted
	r.run(int(ns.blocks.Load()<<ns.shift), (*Request).nextFormat)
}

func (r *Request) nextFormat() bool {
	e := &r.engine
	c := &e.chain
	switch {
	case c.started && e.io.Err != nil:
		r.endChain(r.volumeStatus(e.io.Err))
		return false
	case c.pos == c.end && e.io.Op == blockdev.OpFlush:
		r.endChain(nvme.StatusSuccess)
		return false
	case c.pos == c.end:
		r.prepareFlush()
		return true
	}
	n := min(c.end-c.pos, formatStep)
	r.ask(blockdev.OpWriteZeroes, int64(c.pos), int64(n))
	e.io.MayUnmap = true
	c.pos += n
	return true
}

// formatted ends Format. If it succeeded, no block is marked uncorrectable any more.
func (r *Request) formatted(st nvme.Status) {
	ns := r.engine.ns
	if !st.OK() || ns.state.Load()&nsDamaged == 0 {
		r.endFormat(st)
		return
	}
	r.saving(func() {
		if err := ns.mark(func([]blockRange) []blockRange { return nil }); err != nil {
			st = nvme.StatusInternalError
		}
		r.endFormat(st)
	})
}

// endFormat responds, and opens the namespace to others again.
func (r *Request) endFormat(st nvme.Status) {
	ns := r.engine.ns
	ns.sub.noteFormat(r.engine.q.ctrl, ns.nsid, st, r.engine.chain.started)
	r.respond(st)
	ns.include()
}
