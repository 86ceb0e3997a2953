package target

import (
	"math/bits"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// setFeatures executes Set Features.
func (r *Request) setFeatures() {
	c := r.engine.q.ctrl
	f := r.Cmd.FID()
	caps, ok := c.feature(f)
	nsid := r.Cmd.NSID()
	switch {
	case !ok:
		r.fail(nvme.StatusInvalidField, offFID)
	case r.Cmd.FeatureSave():
		r.fail(nvme.StatusFeatureNotSaveable, offSV)
	case f == nvme.FeatHostID:
		r.fail(nvme.StatusCommandSequence, noLoc) // it is set by Connect
	case caps&nvme.FeatureNamespace == 0 && nsid != nvme.NSIDNone && nsid != nvme.NSIDAll:
		r.fail(nvme.StatusFeatureNotNamespace, offNSID)
	case f == nvme.FeatTimestamp:
		if r.mapSGL(nvme.TimestampSize) {
			r.withHostData(nvme.TimestampSize, (*Request).setTimestamp)
		}
	case f == nvme.FeatWriteProtect:
		r.setWriteProtect()
	case f == nvme.FeatErrorRecovery:
		r.setErrorRecovery()
	case f == nvme.FeatResvNotification:
		mask := r.Cmd.CDW(11) & resvMaskAll
		r.setOfNS(func(f *nsFeatures) { f.resvMask = mask })
	case f == nvme.FeatResvPersistence:
		r.setResvPersistence()
	case f == nvme.FeatKATO && r.Cmd.CDW(11) == 0:
		r.fail(nvme.StatusKATOInvalid, offCDW11) // the transports require it ("Keep Alive Timer Configuration")
	case f == nvme.FeatKATO:
		c.setKATO(time.Duration(r.Cmd.CDW(11)) * time.Millisecond)
		r.respond(nvme.StatusSuccess)
	default:
		result, st, loc := c.setFeature(f, r.Cmd.CDW(11))
		if !st.OK() {
			r.fail(st, loc)
			return
		}
		r.CQE.SetDW0(result)
		r.respond(nvme.StatusSuccess)
	}
}

// setFeature sets a feature that is one dword, or returns what is wrong and where.
func (c *controller) setFeature(f nvme.FID, v uint32) (result uint32, st nvme.Status, loc uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fs := &c.features
	switch f {
	case nvme.FeatArbitration:
		fs.arbitration = v &^ 0xf8 // reserved
	case nvme.FeatPower:
		if v&0x1f != 0 {
			return 0, nvme.StatusInvalidField, offCDW11 // there is only power state 0
		}
		fs.power = v & 0xe0 // the workload hint, which is of no use here
	case nvme.FeatTempThreshold:
		return fs.setTemperature(v)
	case nvme.FeatVolatileWC:
		if v&nvme.VolatileWCEnable == 0 {
			return 0, nvme.StatusFeatureNotChangeable, offCDW11 // hosts that want no cache use FUA
		}
	case nvme.FeatNumberOfQueues:
		return c.grantQueues(nvme.QueueCounts(v))
	case nvme.FeatWriteAtomicity:
		fs.atomicity = v & 1
	case nvme.FeatAsyncEvent:
		ev := nvme.AsyncEventConfig(v)
		if bad := ev &^ (c.supportedEvents() | healthEvents); bad != 0 {
			return 0, nvme.StatusInvalidField, offBit(bits.TrailingZeros32(uint32(bad)))
		}
		fs.asyncEvent = ev
		c.events.unwant(ev)
	}
	return 0, nvme.StatusSuccess, 0
}

// setErrorRecovery executes Set Features 05h.
func (r *Request) setErrorRecovery() {
	v := r.Cmd.CDW(11)
	if v>>16&1 != 0 {
		r.fail(nvme.StatusInvalidField, offDULBE) // no namespace reports deallocated blocks
		return
	}
	r.setOfNS(func(f *nsFeatures) { f.errorRecovery = v & 0xffff })
}

// setOfNS executes Set Features for a feature of namespaces that concerns only the controller.
func (r *Request) setOfNS(set func(*nsFeatures)) {
	if all, ok := r.featureNamespaces(); ok {
		r.engine.q.ctrl.setOfNS(all, set)
		r.respond(nvme.StatusSuccess)
	}
}

// setOfNS changes the features of namespaces, except those that are gone.
func (c *controller) setOfNS(all []*Namespace, set func(*nsFeatures)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.features.ofNS == nil {
		c.features.ofNS = map[uint32]nsFeatures{}
	}
	for _, ns := range all {
		if c.sub.namespace(ns.nsid) != ns { // otherwise forgetFeatures comes later
			continue
		}
		of := c.features.ofNS[ns.nsid]
		set(&of)
		c.features.ofNS[ns.nsid] = of
	}
}

func (f *features) setTemperature(v uint32) (result uint32, st nvme.Status, loc uint16) {
	if s := v >> tempSensorShift & 0xf; s != 0 && s != 0xf {
		return 0, nvme.StatusInvalidField, offTMPSEL
	}
	switch v >> tempTypeShift & 3 {
	case 0:
		f.over = uint16(v)
	case 1:
		f.under = uint16(v)
	default:
		return 0, nvme.StatusInvalidField, offTHSEL
	}
	return 0, nvme.StatusSuccess, 0
}

// grantQueues decides how many I/O queues the host may create. Called with mu held.
func (c *controller) grantQueues(want nvme.QueueCounts) (result uint32, st nvme.Status, loc uint16) {
	switch {
	case uint16(want) == 0xffff:
		return 0, nvme.StatusInvalidField, offCDW11
	case uint16(want>>16) == 0xffff:
		return 0, nvme.StatusInvalidField, offNCQR
	case len(c.queues) > 0:
		return 0, nvme.StatusCommandSequence, noLoc
	}
	n := c.t.limits.Queues
	c.features.queues = nvme.NewQueueCounts(min(want.SQ(), n), min(want.CQ(), n))
	return uint32(c.features.queues), nvme.StatusSuccess, 0
}

func (r *Request) setTimestamp() {
	var b [nvme.TimestampSize]byte
	r.hostData(b[:], 0)
	var ts nvme.Timestamp
	_ = ts.Parse(b[:]) // there are enough bytes
	ts.Origin, ts.Synch = 1, false
	c := r.engine.q.ctrl
	c.mu.Lock()
	was := nvme.TimestampChangeEvent{
		Previous:   c.features.now().Millis,
		SinceReset: uint64(time.Since(c.features.resetAt).Milliseconds()),
	}
	c.features.timestamp, c.features.timestampSet = ts, time.Now()
	c.mu.Unlock()
	c.sub.noteEvent(nvme.PersistentTimestamp, c, &was)
	r.respond(nvme.StatusSuccess)
}
