package target

import "github.com/nvme-anywhere/nvmeof/nvme"

// volatileCache reports whether a completed write to any namespace may be lost before a Flush.
func (s *Subsystem) volatileCache() bool {
	for _, ns := range s.all() {
		if ns.info.VolatileCache {
			return true
		}
	}
	return false
}

// identifyCache tells the host whether there is a volatile write cache (Identify Controller, VWC). A host that was told
// that there is none sends no Flush; if a namespace with a cache is added later, that host's writes and discards go
// through it (flushesForHost) until the host starts over with a reset: a later Identify may come from a user of the host,
// whose kernel knows no more than before.
func (c *controller) identifyCache() nvme.VWC {
	if c.sub.volatileCache() {
		return nvme.VWCPresent | nvme.VWCFlushAll
	}
	c.noCache.Store(true)
	return nvme.VWCFlushAll
}

// durable reports whether the write that r asks for must be durable when it completes: because the command says so
// (FUA), or because its host knows of no volatile write cache.
func (r *Request) durable() bool { return r.Cmd.FUA() || r.flushesForHost() }

// flushesForHost reports whether the volume has a volatile write cache that the host of r doesn't know of, and so doesn't
// flush.
func (r *Request) flushesForHost() bool {
	e := &r.engine
	return e.ns.info.VolatileCache && e.q.ctrl.noCache.Load()
}

// durableRead reports whether the blocks that r reads, which any host may have written, must be durable when it
// completes (FUA).
func (r *Request) durableRead() bool {
	return r.Cmd.FUA() && r.engine.ns.info.VolatileCache
}

// durableReadStatus returns the status of a command that has read blocks and then flushed the volume. Like a Flush, it
// also fails for what was lost earlier; but its host hasn't been told of that before one of its Flushes fails.
func (r *Request) durableReadStatus() nvme.Status {
	e := &r.engine
	st := e.ns.losses.tell(e.q.ctrl.host(), e.losses, false)
	if e.io.Err != nil {
		st = r.volumeStatus(e.io.Err)
	}
	if !st.OK() {
		st |= nvme.StatusDNR
	}
	return st
}
