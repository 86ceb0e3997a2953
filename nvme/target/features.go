package target

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Places in Get Features and Set Features that errors refer to.
const (
	offFID    = 40
	offSEL    = 41
	offSV     = 43 | 7<<locBit
	offTMPSEL = 46             // of feature 04h
	offTHSEL  = 46 | 4<<locBit // of feature 04h
	offDULBE  = 46             // of feature 05h
	offNCQR   = 46             // of feature 07h; NSQR is before it
)

// offBit returns the place of a bit of dword 11.
func offBit(bit int) uint16 { return uint16(offCDW11+bit/8) | uint16(bit%8)<<locBit }

// features are the values that a host can set. Guarded by controller.mu; a reset sets them to their defaults.
type features struct {
	arbitration  uint32
	power        uint32
	atomicity    uint32
	queues       nvme.QueueCounts // granted
	asyncEvent   nvme.AsyncEventConfig
	over, under  uint16 // temperature thresholds, K
	timestamp    nvme.Timestamp
	timestampSet time.Time
	resetAt      time.Time
	ofNS         map[uint32]nsFeatures // by NSID
}

// nsFeatures are the features of one namespace.
type nsFeatures struct {
	errorRecovery uint32
	resvMask      uint32 // reservation notifications not wanted
}

func (f *features) reset(t *Target) {
	now := time.Now()
	*f = features{
		queues:       nvme.NewQueueCounts(t.limits.Queues, t.limits.Queues),
		over:         warningTemperature,
		timestampSet: now,
		resetAt:      now,
	}
}

// now is the value of the Timestamp feature. It wraps after 48 bits.
func (f *features) now() nvme.Timestamp {
	ts := f.timestamp
	ts.Millis = (ts.Millis + uint64(time.Since(f.timestampSet).Milliseconds())) & (1<<48 - 1)
	return ts
}

// What Get Features reports can be done with a feature.
const (
	featureFixed      = 0
	featureChangeable = nvme.FeatureChangeable
	featureOfNS       = nvme.FeatureChangeable | nvme.FeatureNamespace
)

// featureCaps holds the features there are, and what can be done with them.
var featureCaps = map[nvme.FID]uint32{
	nvme.FeatArbitration:    featureChangeable,
	nvme.FeatPower:          featureChangeable,
	nvme.FeatTempThreshold:  featureChangeable,
	nvme.FeatErrorRecovery:  featureOfNS,
	nvme.FeatVolatileWC:     featureFixed, // WCE can't be cleared
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

// feature looks up a feature; false if the controller doesn't have it.
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

// WCTEMP and CCTEMP, in kelvins. Nothing here has a temperature, but since NVMe 1.2 neither may be 0. The first is the
// recommended value, and the default of feature 04h.
const (
	warningTemperature  = 0x157
	criticalTemperature = 0x175
)

// Fields of feature 04h.
const (
	tempSensorShift = 16 // TMPSEL; 0 is the composite temperature, Fh all sensors when setting
	tempTypeShift   = 20 // THSEL; 0 over, 1 under temperature
)

// featureNamespaces returns the namespaces for which a feature is set or requested: one, or all. If there is no such
// namespace, or one can't be reached, it responds and returns false.
func (r *Request) featureNamespaces() ([]*Namespace, bool) {
	c := r.engine.q.ctrl
	all := c.all()
	if r.Cmd.NSID() != nvme.NSIDAll {
		ns := c.namespace(r.Cmd.NSID())
		if ns == nil {
			r.fail(noNamespace(r.Cmd.FID()), offNSID)
			return nil, false
		}
		all = []*Namespace{ns}
	}
	for _, ns := range all {
		if st := c.access(ns); !st.OK() {
			r.respond(st)
			return nil, false
		}
	}
	return all, true
}

// noNamespace returns the status of Get Features and Set Features 05h, 82h and 83h for a wrong NSID. The features of
// reservations have one of their own ("Reservation Notification Mask", "Reservation Persistence").
func noNamespace(f nvme.FID) nvme.Status {
	if f == nvme.FeatErrorRecovery {
		return nvme.StatusInvalidNamespace
	}
	return nvme.StatusInvalidField
}

// forgetFeatures is called when a namespace has been removed from the table: the next one with its NSID is a different
// one.
func (s *Subsystem) forgetFeatures(nsid uint32) {
	for _, c := range s.t.controllersOf(s) {
		c.mu.Lock()
		delete(c.features.ofNS, nsid)
		c.mu.Unlock()
	}
}
