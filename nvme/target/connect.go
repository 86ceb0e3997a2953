package target

import (
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// refusal is why a Connect fails.
type refusal struct {
	status nvme.Status
	where  nvme.ConnectInvalid // for StatusConnectInvalidParameter
	why    string              // for the log
}

func refuse(st nvme.Status, format string, args ...any) *refusal {
	return &refusal{status: st, why: fmt.Sprintf(format, args...)}
}

func refuseCommand(off uint16, format string, args ...any) *refusal {
	r := refuse(nvme.StatusConnectInvalidParameter|nvme.StatusDNR, format, args...)
	r.where = nvme.InvalidCommand(off)
	return r
}

func refuseData(off uint16, format string, args ...any) *refusal {
	r := refuse(nvme.StatusConnectInvalidParameter|nvme.StatusDNR, format, args...)
	r.where = nvme.InvalidData(off)
	return r
}

// refuseGone refuses a queue of a controller that doesn't exist. It may have ended since its host made it, for example
// because the target was restarted, so this is without Do Not Retry: after that a host never connects again (Linux
// since 6.10).
func refuseGone(cntlid uint16) *refusal {
	r := refuse(nvme.StatusConnectInvalidParameter, "the subsystem has no controller %d", cntlid)
	r.where = nvme.InvalidData(nvme.ConnectDataOffCNTLID)
	return r
}

// connect executes Connect, whose data has arrived.
func (r *Request) connect() {
	var buf [nvme.ConnectDataSize]byte
	r.hostData(buf[:], 0)
	q := r.engine.q
	var d nvme.ConnectData
	no := q.connect(&r.Cmd, &d, buf[:])
	if no != nil {
		q.state.CompareAndSwap(queueConnecting, queueNew)
		r.refuseConnect(&d, no)
		return
	}
	q.timer.Stop()
	q.proved()
	res := nvme.ConnectResult(q.ctrl.id)
	if q.auth.Load() != nil {
		res |= nvme.ConnectATR
	}
	r.CQE.SetDW0(uint32(res))
	if q.sq.Load()&sqNoFlow != 0 {
		r.CQE.SetSQHD(0xffff) // grants that SQ flow control is disabled; from then on SQHD is 0
	}
	r.respond(nvme.StatusSuccess)
}

// refuseConnect answers Connect with a refusal; d is as much of its data as is known.
func (r *Request) refuseConnect(d *nvme.ConnectData, no *refusal) {
	q := r.engine.q
	q.t.mu.Lock()
	q.t.totals(q.attr.Transport).refusedConnects++
	q.t.mu.Unlock()
	q.t.log.Warn("Connect refused: "+no.why, "transport", q.attr.Transport.String(), "remote", q.attr.Remote,
		"subsystem", nvme.Shown(d.SubNQN), "host", nvme.Shown(d.HostNQN), "qid", r.Cmd.ConnectQID())
	r.CQE.SetDW0(uint32(no.where))
	r.respond(no.status)
}

// connect checks Connect and makes q the queue that it asks for.
func (q *Queue) connect(cmd *nvme.Command, d *nvme.ConnectData, data []byte) *refusal {
	if f := cmd.ConnectRECFMT(); f != 0 {
		return refuse(nvme.StatusConnectFormat|nvme.StatusDNR, "record format %d, only 0 is known", f)
	}
	if err := d.Parse(data); err != nil {
		if d.SubNQN == "" {
			return refuseData(nvme.ConnectDataOffSUBNQN, "%v", err)
		}
		return refuseData(nvme.ConnectDataOffHOSTNQN, "%v", err)
	}
	sub, no := q.t.find(d)
	if no != nil {
		return no
	}
	auth, no := q.t.mustAuthenticate(sub, d.HostNQN)
	if no != nil {
		return no
	}
	if qid := cmd.ConnectQID(); q.attr.QID >= 0 && q.attr.QID != int(qid) {
		return refuseCommand(nvme.ConnectOffQID, "queue %d on a connection made for queue %d", qid, q.attr.QID)
	}
	if cmd.ConnectQID() == 0 {
		return q.connectAdmin(cmd, d, sub, auth)
	}
	return q.connectIO(cmd, d, sub, auth)
}

// find finds the subsystem that Connect names, if the host may use it.
func (t *Target) find(d *nvme.ConnectData) (*Subsystem, *refusal) {
	sub := t.discovery // by its own name, and by the one that all discovery subsystems have
	if d.SubNQN != nvme.DiscoveryNQN && d.SubNQN != sub.nqn {
		sub = t.Subsystem(d.SubNQN)
	}
	if sub == nil {
		return nil, refuseData(nvme.ConnectDataOffSUBNQN, "no such subsystem")
	}
	if !printable(d.HostNQN) {
		return nil, refuseData(nvme.ConnectDataOffHOSTNQN, "the host's NQN can't be printed")
	}
	if !sub.allows(d.HostNQN) {
		return nil, refuse(nvme.StatusConnectInvalidHost|nvme.StatusDNR, "the host isn't allowed")
	}
	return sub, nil
}

// printable reports whether a host's name can be written to logs and metrics. Otherwise hosts may choose names that are
// not NQNs, or have none: spdk_nvme_perf has none unless it is given one. If any host may connect, those without a name
// may as well, and count as one.
func printable(nqn string) bool { return nvme.Shown(nqn) == nqn }

// queueSize returns the size of the queue that Connect asks for, in entries.
func (q *Queue) queueSize(cmd *nvme.Command) (int, *refusal) {
	n := int(cmd.ConnectSQSIZE()) + 1
	most := min(q.t.limits.QueueDepth, q.attr.QueueDepth)
	if n < 2 || n > most {
		return 0, refuseCommand(nvme.ConnectOffSQSIZE, "queue of %d entries, it must be 2 to %d", n, most)
	}
	return n, nil
}

func (q *Queue) connectAdmin(cmd *nvme.Command, d *nvme.ConnectData, sub *Subsystem, auth bool) *refusal {
	if d.CNTLID != nvme.CNTLIDDynamic {
		return refuseData(nvme.ConnectDataOffCNTLID, "controller %d asked for, they are allocated dynamically", d.CNTLID)
	}
	size, no := q.queueSize(cmd)
	if no != nil {
		return no
	}
	c, no := q.t.newController(q, sub, d)
	if no != nil {
		return no
	}
	kato := time.Duration(cmd.ConnectKATO()) * time.Millisecond
	switch {
	case !sub.discovery:
	case kato == 0:
		kato = discoveryKATO
	default: // it asks for a persistent connection ("Discovery Controller Asynchronous Event Configuration")
		c.mu.Lock()
		c.features.asyncEvent = nvme.AENDiscovery
		c.mu.Unlock()
	}
	c.setKATO(kato)
	if !q.attach(size, cmd, auth) {
		c.destroy(nil)
		return refuse(nvme.StatusAbortSQDeleted, "the connection ended")
	}
	q.t.log.Info("host connected", c.identity("kato", c.keepAlive())...)
	return nil
}

func (q *Queue) connectIO(cmd *nvme.Command, d *nvme.ConnectData, sub *Subsystem, auth bool) *refusal {
	qid := cmd.ConnectQID()
	c := q.t.controller(d.CNTLID)
	switch {
	case q.attr.CNTLID >= 0 && q.attr.CNTLID != int(d.CNTLID):
		return refuseData(nvme.ConnectDataOffCNTLID, "controller %d on a connection made for controller %d", d.CNTLID, q.attr.CNTLID)
	case c == nil || c.sub != sub:
		return refuseGone(d.CNTLID)
	case c.attr.Transport != q.attr.Transport:
		return refuseData(nvme.ConnectDataOffCNTLID, "controller %d is reached over %s", d.CNTLID, c.attr.Transport)
	case c.hostNQN != d.HostNQN:
		return refuseData(nvme.ConnectDataOffHOSTNQN, "controller %d is another host's", d.CNTLID)
	case c.hostID != d.HostID && d.HostID != nvme.HostID{}: // a zero host ID is ignored
		return refuseData(nvme.ConnectDataOffHostID, "controller %d was made with another host ID", d.CNTLID)
	case sub.discovery:
		return refuseCommand(nvme.ConnectOffQID, "a discovery controller has no I/O queues")
	case int(qid) > q.t.limits.Queues:
		return refuseCommand(nvme.ConnectOffQID, "queue %d, the last is %d", qid, q.t.limits.Queues)
	}
	size, no := q.queueSize(cmd)
	if no != nil {
		return no
	}
	if no := c.reserve(qid, q); no != nil {
		return no
	}
	if !q.attach(size, cmd, auth) {
		c.drop(qid, q)
		return refuse(nvme.StatusAbortSQDeleted, "the connection ended")
	}
	c.holdLeft()
	return nil
}

// attach opens q, which its controller has already, for commands; the host may have to authenticate itself first. It
// returns false if the connection has ended meanwhile.
func (q *Queue) attach(size int, cmd *nvme.Command, auth bool) bool {
	sq := uint32(size)
	if cmd.ConnectCATTR()&nvme.CATTRNoSQFlowControl != 0 {
		sq |= sqNoFlow
	}
	q.sq.Store(sq)
	if auth {
		a := q.newAuth()
		q.auth.Store(a)
		ok := q.state.CompareAndSwap(queueConnecting, queueAuthenticating)
		if !ok {
			a.timer.Stop()
		}
		return ok
	}
	return q.state.CompareAndSwap(queueConnecting, queueConnected)
}
