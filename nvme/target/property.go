package target

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// version is the VS and VER of every controller.
const version = nvme.Version1_4

// readyTimeout is CAP.TO: far more than it takes, unless a volume is slow (settle).
const readyTimeout = 5 * time.Second

// Byte offsets in Property Get and Property Set.
const (
	offPropAttrib = 40
	offPropOffset = 44
)

// capabilities is CAP. Bit 43 (I/O command sets) stays clear: there is only the NVM set.
func (c *controller) capabilities() nvme.CAP {
	return nvme.NewCAP(c.queueDepth(), readyTimeout, nvme.CAPNVM)
}

func (c *controller) queueDepth() int { return min(c.t.limits.QueueDepth, c.attr.QueueDepth) }

// ccFields are the fields of CC that a host can write: the other bits are reserved, or, like CRIME, can't be set here.
const ccFields = nvme.CCEnable | nvme.CCCSSMask | nvme.CCMPSMask | nvme.CCAMSMask | nvme.CCSHNMask | nvme.CCIOSQESMask | nvme.CCIOCQESMask

func (r *Request) propertyGet() {
	c := r.engine.q.ctrl
	p := r.Cmd.Property()
	var v uint64
	switch p {
	case nvme.PropCAP:
		v = uint64(c.capabilities())
	case nvme.PropVS:
		v = uint64(version)
	case nvme.PropCC:
		cc, _ := c.registers()
		v = uint64(cc)
	case nvme.PropCSTS:
		_, csts := c.registers()
		v = uint64(csts)
	default:
		r.fail(nvme.StatusInvalidField, offPropOffset)
		return
	}
	if r.Cmd.PropertySize() != p.Size() {
		r.fail(nvme.StatusInvalidField, offPropAttrib)
		return
	}
	r.CQE.SetResult(v)
	r.respond(nvme.StatusSuccess)
}

// propertySet sets CC, the only property that can be set: there is no subsystem reset.
func (r *Request) propertySet() {
	if p := r.Cmd.Property(); p != nvme.PropCC {
		r.fail(nvme.StatusInvalidField, offPropOffset)
		return
	}
	if r.Cmd.PropertySize() != nvme.PropCC.Size() {
		r.fail(nvme.StatusInvalidField, offPropAttrib)
		return
	}
	r.engine.q.ctrl.configure(nvme.CC(r.Cmd.PropertyValue()) & ccFields)
	r.respond(nvme.StatusSuccess)
}
