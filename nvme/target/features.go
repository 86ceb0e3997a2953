package target

import (
	"math/bits"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Places in Get Features and Set Features that errors name.
const (
	offFID    = 40
	offSEL    = 41
	offSV     = 43 | 7<<locBit
	offTMPSEL = 46             // of feature 04h
	offTHSEL  = 46 | 4<<locBit // of feature 04h
	offDULBE  = 46             // of feature 05h
	offNCQR   = 46             // of feature 07h; NSQR is before it
)

// offBit is the place of a bit of dword 11.
func offBit(bit int) uint16 { return uint16(offCDW11+bit/8) | uint16(bit%8)<<locBit }

// features are the values that a host can set. controller.mu guards them; a reset gives them
// their defaults.
type features struct {
	arbitration  uint32
	atomicity    uint32
	queues       nvme.QueueCounts // granted
	asyncEvent   nvme.AsyncEventConfig
	over, under  uint16 // temperature thresholds, K
	timestamp    nvme.Timestamp
	timestampSet time.Time
	ofNS         map[uint32]nsFeatures // by NSID
}

// nsFeatures are those of one namespace.
type nsFeatures struct {
	errorRecovery uint32
	resvMask      uint32 // reservation notifications not wanted
}

func (f *features) reset(t *Target) {
	*f = features{
		queues:       nvme.NewQueueCounts(t.limits.Queues, t.limits.Queues),
		over:         0xffff,
		timestampSet: time.Now(),
	}
}

// What Get Features says can be done with a feature.
const (
	featureFixed      = 0
	featureChangeable = nvme.FeatureChangeable
	featureOfNS       = nvme.FeatureChangeable | nvme.FeatureNamespace
)

// featureCaps says which features there are.
var featureCaps = map[nvme.FID]uint32{
	nvme.FeatArbitration:    featureChangeable,
	nvme.FeatPower:          featureChangeable,
	nvme.FeatTempThreshold:  featureChangeable,
	nvme.FeatErrorRecovery:  featureOfNS,
	nvme.FeatVolatileWC:     featureChangeable,
	nvme.FeatNumberOfQueues: featureChangeable,
	nvme.FeatWriteAtomicity: featureChangeable,
	nvme.FeatAsyncEvent:     featureChangeable,
	nvme.FeatTimestamp:      featureChangeable,
	nvme.FeatKATO:           featureChangeable,
	nvme.FeatHostID:         featureFixed,
	nvme.FeatWriteProtect:   featureOfNS,

	nvme.FeatResvNotification: featureOfNS,
	nvme.FeatResvPersistence:  featureOfNS,
}

// feature looks up a feature; false where the controller hasn't got it.
func (c *controller) feature(f nvme.FID) (caps uint32, ok bool) {
	if c.sub.discovery && f != nvme.FeatAsyncEvent && f != nvme.FeatKATO || f == nvme.FeatVolatileWC && !c.sub.volatileCache() {
		return 0, false
	}
	caps, ok = featureCaps[f]
	return caps, ok
}

// supportedEvents is OAES.
func (c *controller) supportedEvents() nvme.AsyncEventConfig {
	if c.sub.discovery {
		return nvme.AENDiscovery
	}
	return nvme.AENNamespace | nvme.AENANA
}

// healthEvents may always be configured, though nothing here ever becomes unhealthy.
const healthEvents = nvme.AENSpare | nvme.AENTemperature | nvme.AENReliability | nvme.AENReadOnly | nvme.AENBackup

// getFeatures executes Get Features.
func (r *Request) getFeatures() {
	c := r.engine.q.ctrl
	f := r.Cmd.FID()
	caps, ok := c.feature(f)
	if !ok {
		r.fail(nvme.StatusInvalidField, offFID)
		return
	}
	var v uint32
	switch sel := r.Cmd.FeatureSEL(); sel {
	case nvme.SELSupported:
		r.CQE.SetDW0(caps)
		r.respond(nvme.StatusSuccess)
		return
	case nvme.SELDefault, nvme.SELSaved:
		// Nothing can be saved; what was never saved is the default.
		var def features
		def.reset(c.t)
		v, ok = r.featureValue(f, &def, sel)
	case nvme.SELCurrent:
		c.mu.Lock()
		now := c.features
		c.mu.Unlock()
		v, ok = r.featureValue(f, &now, sel)
	default:
		r.fail(nvme.StatusInvalidField, offSEL)
		return
	}
	if !ok {
		return // it has responded
	}
	r.CQE.SetDW0(v)
	r.respond(nvme.StatusSuccess)
}

// featureValue is the value of a feature among fs. It responds itself, and returns false, for
// an error and for a feature that comes with data.
func (r *Request) featureValue(f nvme.FID, fs *features, sel nvme.SEL) (uint32, bool) {
	c := r.engine.q.ctrl
	switch f {
	case nvme.FeatArbitration:
		return fs.arbitration, true
	case nvme.FeatTempThreshold:
		return r.temperatureThreshold(fs)
	case nvme.FeatVolatileWC:
		return nvme.VolatileWCEnable, true
	case nvme.FeatNumberOfQueues:
		return uint32(fs.queues), true
	case nvme.FeatWriteAtomicity:
		return fs.atomicity, true
	case nvme.FeatAsyncEvent:
		return uint32(fs.asyncEvent), true
	case nvme.FeatKATO:
		if sel != nvme.SELCurrent {
			return uint32(defaultKATO.Milliseconds()), true
		}
		return uint32(c.keepAlive().Milliseconds()), true
	case nvme.FeatTimestamp:
		ts := fs.timestamp
		ts.Millis += uint64(time.Since(fs.timestampSet).Milliseconds())
		r.replyFeature(ts.AppendTo(nil))
		return 0, false
	case nvme.FeatHostID:
		if r.Cmd.CDW(11)&nvme.HostIDExtended == 0 {
			r.fail(nvme.StatusInvalidField, offCDW11) // Fabrics has 128 bits only
		} else {
			r.replyFeature(c.hostID[:])
		}
		return 0, false
	case nvme.FeatWriteProtect:
		ns := c.namespace(r.Cmd.NSID())
		if ns == nil {
			r.fail(nvme.StatusInvalidNamespace, offNSID)
			return 0, false
		}
		if ns.protected.Load() && (sel == nvme.SELCurrent || ns.fixed) {
			return writeProtected, true
		}
	case nvme.FeatErrorRecovery, nvme.FeatResvNotification, nvme.FeatResvPersistence:
		return r.nsFeature(f, fs, sel)
	}
	return 0, true
}

// nsFeature is the value of a feature 05h, 82h or 83h of a namespace.
func (r *Request) nsFeature(f nvme.FID, fs *features, sel nvme.SEL) (uint32, bool) {
	c := r.engine.q.ctrl
	if r.Cmd.NSID() == nvme.NSIDAll {
		st := nvme.StatusInvalidField
		if f == nvme.FeatErrorRecovery {
			st = nvme.StatusInvalidNamespace
		}
		r.fail(st, offNSID)
		return 0, false
	}
	all, ok := r.featureNamespaces()
	if !ok {
		return 0, false
	}
	ns := all[0]
	c.mu.Lock()
	of := fs.ofNS[ns.nsid]
	c.mu.Unlock()
	switch {
	case f == nvme.FeatErrorRecovery:
		return of.errorRecovery, true
	case f == nvme.FeatResvNotification:
		return of.resvMask, true
	case sel == nvme.SELCurrent && ns.resv.now.Load().persist:
		return nvme.ResvPersistPTPL, true
	}
	return 0, true
}

func (r *Request) replyFeature(b []byte) {
	if r.mapSGL(len(b)) {
		r.engine.page = append([]byte(nil), b...)
		r.withMemory(len(b), (*Request).replyPage)
	}
}

// Fields of feature 04h.
const (
	tempSensorShift = 16 // TMPSEL; 0 is the composite temperature, Fh all sensors when setting
	tempTypeShift   = 20 // THSEL; 0 over, 1 under temperature
)

func (r *Request) temperatureThreshold(fs *features) (uint32, bool) {
	dw := r.Cmd.CDW(11)
	if dw>>tempSensorShift&0xf != 0 {
		r.fail(nvme.StatusInvalidField, offTMPSEL) // no sensor but the composite one
		return 0, false
	}
	switch dw >> tempTypeShift & 3 {
	case 0:
		return uint32(fs.over), true
	case 1:
		return uint32(fs.under), true
	}
	r.fail(nvme.StatusInvalidField, offTHSEL)
	return 0, false
}

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
		r.fail(nvme.StatusCommandSequence, noLoc) // it is that of Connect
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

// setFeature sets a feature that is one dword, or says what is wrong and where.
func (c *controller) setFeature(f nvme.FID, v uint32) (result uint32, st nvme.Status, loc uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fs := &c.features
	switch f {
	case nvme.FeatArbitration:
		fs.arbitration = v
	case nvme.FeatPower:
		if v&0x1f != 0 {
			return 0, nvme.StatusInvalidField, offCDW11 // there is only power state 0
		}
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

// featureNamespaces are those that a feature of namespaces is set or asked for of: one, or all. It responds itself, and
// returns false, where there is no such namespace, or one can't be reached.
func (r *Request) featureNamespaces() ([]*Namespace, bool) {
	c := r.engine.q.ctrl
	all := c.all()
	if r.Cmd.NSID() != nvme.NSIDAll {
		ns := c.namespace(r.Cmd.NSID())
		if ns == nil {
			r.fail(nvme.StatusInvalidNamespace, offNSID)
			return nil, false
		}
		all = []*Namespace{ns}
	}
	for _, ns := range all {
		if st := anaStatus(c.anaState(ns.anaGroup)); !st.OK() {
			r.respond(st)
			return nil, false
		}
	}
	return all, true
}

// setOfNS executes Set Features of a feature of namespaces that only the controller heeds.
func (r *Request) setOfNS(set func(*nsFeatures)) {
	if all, ok := r.featureNamespaces(); ok {
		r.engine.q.ctrl.setOfNS(all, set)
		r.respond(nvme.StatusSuccess)
	}
}

// setOfNS changes the features of namespaces, but for those that are gone.
func (c *controller) setOfNS(all []*Namespace, set func(*nsFeatures)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.features.ofNS == nil {
		c.features.ofNS = map[uint32]nsFeatures{}
	}
	for _, ns := range all {
		if c.sub.namespace(ns.nsid) != ns { // or forgetFeatures comes later
			continue
		}
		of := c.features.ofNS[ns.nsid]
		set(&of)
		c.features.ofNS[ns.nsid] = of
	}
}

// forgetFeatures is called when a namespace isn't in the table any more: one that gets its identifier is another.
func (s *Subsystem) forgetFeatures(nsid uint32) {
	for _, c := range s.t.controllersOf(s) {
		c.mu.Lock()
		delete(c.features.ofNS, nsid)
		c.mu.Unlock()
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

// grantQueues answers how many I/O queues the host may make. Called with mu held.
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
		Previous:   c.features.timestamp.Millis + uint64(time.Since(c.features.timestampSet).Milliseconds()),
		SinceReset: uint64(time.Since(c.since).Milliseconds()),
	}
	c.features.timestamp, c.features.timestampSet = ts, time.Now()
	c.mu.Unlock()
	c.sub.noteEvent(nvme.PersistentTimestamp, c, &was)
	r.respond(nvme.StatusSuccess)
}
