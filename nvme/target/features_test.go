package target

import (
	"bytes"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestFeatureEffects: the log of feature effects names exactly the features that exist and can be read, with their
// scope; that of management commands names none.
func TestFeatureEffects(t *testing.T) {
	for _, cache := range []bool{true, false} {
		v := newTestVolume(1<<20, 512)
		v.info.VolatileCache = cache
		testFeatureEffects(t, newTarget(t, v))
	}
}

func testFeatureEffects(t *testing.T, tg *Target) {
	t.Helper()
	s := connect(t, tg, testNQN)
	defer s.close()
	page := make([]byte, nvme.PageSize)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogMIEffects, Length: nvme.PageSize}), page)
	if !bytes.Equal(page, make([]byte, nvme.PageSize)) {
		t.Error("there are management commands")
	}
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogFeatureEffects, Length: 1024}), page[:1024])
	var log nvme.FeatureEffectsLog
	if err := log.Parse(page); err != nil {
		t.Fatal(err)
	}
	for fid, e := range log {
		get := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FID(fid), nvme.SELSupported, 0, 0) })
		cqe := s.admin.do(get, nil)
		scope := nvme.FeatureScopeController
		if cqe.DW0()&nvme.FeatureNamespace != 0 {
			scope = nvme.FeatureScopeNamespace
		}
		switch want := nvme.FeatureEffectSupported | scope; {
		case cqe.Status().OK() && e != want:
			t.Errorf("feature %#x: %#x, want %#x", fid, e, want)
		case !cqe.Status().OK() && e != 0:
			t.Errorf("feature %#x, which there isn't: %#x", fid, e)
		case e != 0:
			var nsid uint32
			if scope == nvme.FeatureScopeNamespace {
				nsid = 1
			}
			get.SetGetFeatures(nvme.FID(fid), nvme.SELCurrent, nsid, nvme.HostIDExtended)
			s.admin.must(get, make([]byte, nvme.FeatureDataSize(nvme.FID(fid), nvme.HostIDExtended)))
		}
	}
	if log[nvme.FeatWriteProtect]&nvme.FeatureScopeNamespace == 0 {
		t.Error("write protection is not of a namespace")
	}
}

// TestFeatures: features have the values that they are set to, and their defaults after a reset.
func TestFeatures(t *testing.T) {
	tg := newTargetWith(t, func(c *Config) { c.Limits.Queues = 8 }, newTestVolume(1<<20, 512))
	q := dial(t, tg)
	connectAdmin(q, testNQN, 5000)
	for _, tc := range []featureCase{
		{nvme.FeatArbitration, 0x040302f9, 0, 0, 0x04030201, 0}, // with reserved bits
		{nvme.FeatPower, 0, 0, 0, 0, 0},
		{nvme.FeatPower, 1, nvme.StatusInvalidField | dnr, 0, 0, 0},
		{nvme.FeatPower, 1<<8 | 2<<5, 0, 0, 2 << 5, 0}, // Workload Hint, and a reserved bit
		{nvme.FeatTempThreshold, 350, 0, 0, 350, 0x157},
		{nvme.FeatTempThreshold, 1<<20 | 270, 0, 1 << 20, 270, 0},
		{nvme.FeatTempThreshold, 1 << 16, nvme.StatusInvalidField | dnr, 0, 350, 0x157},
		{nvme.FeatTempThreshold, 2 << 20, nvme.StatusInvalidField | dnr, 0, 350, 0x157},
		{nvme.FeatTempThreshold, 0xf<<16 | 360, 0, 0, 360, 0x157},     // of all sensors
		{nvme.FeatTempThreshold, 1<<22 | 340, 0, 1 << 22, 340, 0x157}, // with a reserved bit
		{nvme.FeatErrorRecovery, 7, 0, 0, 7, 0},
		{nvme.FeatErrorRecovery, 1<<17 | 7, 0, 0, 7, 0}, // with a reserved bit
		{nvme.FeatErrorRecovery, 1 << 16, nvme.StatusInvalidField | dnr, 0, 7, 0},
		{nvme.FeatVolatileWC, 1, 0, 0, 1, 1},
		{nvme.FeatVolatileWC, 2, nvme.StatusFeatureNotChangeable | dnr, 0, 1, 1}, // without WCE
		{nvme.FeatVolatileWC, 0, nvme.StatusFeatureNotChangeable | dnr, 0, 1, 1},
		{nvme.FeatNumberOfQueues, 3<<16 | 3, 0, 0, 3<<16 | 3, 7<<16 | 7},
		{nvme.FeatNumberOfQueues, 99<<16 | 99, 0, 0, 7<<16 | 7, 7<<16 | 7},
		{nvme.FeatNumberOfQueues, 0xffff, nvme.StatusInvalidField | dnr, 0, 7<<16 | 7, 7<<16 | 7},
		{nvme.FeatNumberOfQueues, 0xffff << 16, nvme.StatusInvalidField | dnr, 0, 7<<16 | 7, 7<<16 | 7},
		{nvme.FeatWriteAtomicity, 3, 0, 0, 1, 0},
		{nvme.FeatWriteAtomicity, 0, 0, 0, 0, 0},
		{nvme.FeatAsyncEvent, uint32(healthEvents), 0, 0, uint32(healthEvents), 0},
		{nvme.FeatAsyncEvent, uint32(nvme.AENNamespace), 0, 0, uint32(nvme.AENNamespace), 0},
		{nvme.FeatAsyncEvent, uint32(nvme.AENTelemetry), nvme.StatusInvalidField | dnr, 0, uint32(nvme.AENNamespace), 0},
		{nvme.FeatKATO, 7001, 0, 0, 7100, 120_000},
		{nvme.FeatKATO, 0xffffffff, 0, 0, 0xffffffff / 100 * 100, 120_000},
		{nvme.FeatWriteProtect, 0, 0, 0, 0, 0},
	} {
		tc.run(t, q)
	}
	// All namespaces are as good as none where a feature belongs to the controller.
	q.must(setFeature(nvme.FeatArbitration, nvme.NSIDAll, 5), nil)
	if v := q.must(getFeature(nvme.FeatArbitration, 0, 0), nil).DW0(); v != 5 {
		t.Errorf("arbitration %#x, set for all namespaces", v)
	}
	// A reset brings the defaults back.
	q.must(setProperty(nvme.PropCC, 0), nil)
	q.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	if v := q.must(getFeature(nvme.FeatArbitration, 0, 0), nil).DW0(); v != 0 {
		t.Errorf("arbitration %#x after a reset", v)
	}
}

// TestTemperatures: since NVMe 1.2, WCTEMP and CCTEMP aren't 0; WCTEMP is the default threshold. A discovery controller
// has no such thresholds.
func TestTemperatures(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	q, d := dial(t, tg), dial(t, tg)
	connectAdmin(q, testNQN, 0)
	connectAdmin(d, nvme.DiscoveryNQN, 0)
	var id nvme.IdentifyController
	if err := id.Parse(identifyPage(q, nvme.CNSController, 0)); err != nil {
		t.Fatal(err)
	}
	threshold := q.must(getFeature(nvme.FeatTempThreshold, 0, 0), nil).DW0()
	if id.WCTEMP == 0 || id.CCTEMP < id.WCTEMP || threshold != uint32(id.WCTEMP) {
		t.Errorf("WCTEMP %d CCTEMP %d, feature 04h %d", id.WCTEMP, id.CCTEMP, threshold)
	}
	if err := id.Parse(identifyPage(d, nvme.CNSController, 0)); err != nil || id.WCTEMP|id.CCTEMP != 0 {
		t.Errorf("a discovery controller: WCTEMP %d CCTEMP %d, %v", id.WCTEMP, id.CCTEMP, err)
	}
}

// TestFeaturesOfNoNamespace: a feature can be set for all namespaces even if there is none. Those of reservations have a
// status of their own for a namespace that there isn't ("Reservation Notification Mask", "Reservation Persistence").
func TestFeaturesOfNoNamespace(t *testing.T) {
	q := dial(t, newTarget(t))
	connectAdmin(q, testNQN, 0)
	for f, want := range map[nvme.FID]nvme.Status{
		nvme.FeatErrorRecovery:    nvme.StatusInvalidNamespace,
		nvme.FeatResvNotification: nvme.StatusInvalidField,
		nvme.FeatResvPersistence:  nvme.StatusInvalidField,
	} {
		q.must(setFeature(f, nvme.NSIDAll, 0), nil)
		for _, nsid := range []uint32{0, 1, MaxNSID + 1} {
			for _, cmd := range []nvme.Command{setFeature(f, nsid, 0), command(func(c *nvme.Command) { c.SetGetFeatures(f, nvme.SELCurrent, nsid, 0) })} {
				q.fails(cmd, nil, want|dnr)
				if e := lastError(q); e.Location != offNSID {
					t.Errorf("feature %#x of namespace %d: location %#x", f, nsid, e.Location)
				}
			}
		}
	}
}

// TestFeaturesRefused: features that don't exist, and one that can't be changed.
func TestFeaturesRefused(t *testing.T) {
	q := dial(t, newTarget(t, newTestVolume(1<<20, 512)))
	connectAdmin(q, testNQN, 0)
	for _, f := range []nvme.FID{0, nvme.FeatInterruptCoalesce, nvme.FeatHostBehavior, 0xc0, 0xff} {
		q.fails(setFeature(f, 0, 0), nil, nvme.StatusInvalidField|dnr)
		q.fails(getFeature(f, 0, 0), nil, nvme.StatusInvalidField|dnr)
	}

	for _, f := range []nvme.FID{nvme.FeatResvNotification, nvme.FeatResvPersistence} { // of one namespace at a time
		q.fails(command(func(c *nvme.Command) { c.SetGetFeatures(f, 0, nvme.NSIDAll, 0) }), nil, nvme.StatusInvalidField|dnr)
	}
	id := make([]byte, 16)
	q.must(getFeature(nvme.FeatHostID, 0, nvme.HostIDExtended), id)
	if nvme.HostID(id) != testHostID {
		t.Errorf("host ID %x", id)
	}
	q.fails(getFeature(nvme.FeatHostID, 0, 0), id[:8], nvme.StatusInvalidField|dnr)
	// Over Fabrics, Connect has set it, and no command may change it.
	q.fails(setFeature(nvme.FeatHostID, 0, nvme.HostIDExtended), id, nvme.StatusCommandSequence|dnr)
	q.fails(getFeature(nvme.FeatHostID, 0, nvme.HostIDExtended), id[:8], nvme.StatusSGLLengthInvalid|dnr)
	q.fails(setFeature(nvme.FeatTimestamp, 0, 0), id, nvme.StatusSGLLengthInvalid|dnr)
	q.fails(getFeature(nvme.FeatTempThreshold, 0, 1<<16), nil, nvme.StatusInvalidField|dnr) // there is no such sensor
	if e := lastError(q); e.Location != 46 {
		t.Errorf("location %#x of a sensor", e.Location)
	}
	q.fails(getFeature(nvme.FeatTempThreshold, 0, 2<<20), nil, nvme.StatusInvalidField|dnr)
	if e := lastError(q); e.Location != 46|4<<8 {
		t.Errorf("location %#x of a type of threshold", e.Location)
	}
	q.fails(setFeature(nvme.FeatAsyncEvent, 0, uint32(nvme.AENTelemetry)), nil, nvme.StatusInvalidField|dnr)
	if e := lastError(q); e.Location != 45|2<<8 {
		t.Errorf("location %#x of the telemetry event, bit 10 of dword 11", e.Location)
	}
}
