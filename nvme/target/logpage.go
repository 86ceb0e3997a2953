package target

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Byte offsets in Get Log Page that errors refer to.
const (
	offLID  = 40
	offNUMD = 42
	offLPO  = 48
	offOT   = 58 | 7<<locBit
)

// getLogPage executes Get Log Page. Any length and any offset within the page are accepted; bytes beyond the page's end
// read as zero.
func (r *Request) getLogPage() {
	n, off := r.Cmd.LogLength(), r.logOffset()
	if n > uint64(r.engine.q.attr.MaxTransfer) {
		r.fail(nvme.StatusInvalidField, offNUMD)
		return
	}
	if r.Cmd.LogIndexed() { // no page has IOS
		r.fail(nvme.StatusInvalidField, offOT)
		return
	}
	if off%4 != 0 {
		r.fail(nvme.StatusInvalidField, offLPO)
		return
	}
	// Only the health log may be requested for a single namespace.
	if nsid := r.Cmd.NSID(); nsid != nvme.NSIDNone && nsid != nvme.NSIDAll && r.Cmd.LID() != nvme.LogSMART && r.engine.q.ctrl.hasLog(r.Cmd.LID()) {
		r.fail(nvme.StatusInvalidField, offNSID)
		return
	}
	// The transfer is checked first, because reading some pages changes them; and the page is made when there is memory
	// for it, so that a command that waits for memory holds nothing.
	reply := (*Request).replyLogPage
	if r.engine.q.ctrl.sub.discovery && r.Cmd.LID() == nvme.LogDiscovery {
		reply = (*Request).replyDiscoveryLog
	}
	if r.mapSGL(int(n)) {
		r.withMemory(int(n), reply)
	}
}

// logOffset returns where in the page the command begins to read. The actions of the Persistent Event log that return
// no more than its header ignore LPO.
func (r *Request) logOffset() uint64 {
	if r.Cmd.LID() == nvme.LogPersistent {
		switch r.persistentAction() {
		case nvme.PersistentRelease, nvme.PersistentHeader:
			return 0
		}
	}
	return r.Cmd.LogOffset()
}

func (r *Request) replyLogPage() {
	c, off := r.engine.q.ctrl, r.logOffset()
	if st := c.sub.sanitizing(); !st.OK() && c.hasLog(r.Cmd.LID()) && !whileSanitizing(r.Cmd.LID()) {
		r.respond(st)
		return
	}
	// Only a command that succeeds clears an event ("Retain Asynchronous Event"), or takes a notification.
	page, st, loc := r.logPage(r.beyondLog(off))
	if !st.OK() {
		r.fail(st, loc)
		return
	}
	if off > uint64(len(page)) {
		r.fail(nvme.StatusInvalidField, offLPO)
		return
	}
	r.replyWith(page[off:])
}

// beyondLog reports whether an offset is beyond the end of the page. It skips the Persistent Event log, which even a
// look would change, and which has no event.
func (r *Request) beyondLog(off uint64) bool {
	if off == 0 || r.Cmd.LID() == nvme.LogPersistent {
		return false
	}
	page, _, _ := r.logPage(true)
	return off > uint64(len(page))
}

// logPage makes the whole page, or returns what is wrong and in which byte. The discovery log isn't among its pages. A
// look leaves everything unchanged.
func (r *Request) logPage(look bool) ([]byte, nvme.Status, uint16) {
	c := r.engine.q.ctrl
	lid, retain := r.Cmd.LID(), look || r.Cmd.LogRAE()
	if !c.hasLog(lid) {
		return nil, nvme.StatusInvalidLogPage, offLID
	}
	switch lid {
	case nvme.LogSupported:
		return c.supportedLogs(), 0, 0
	case nvme.LogError:
		return c.errors.page(c.sub.sanitizing().OK()), 0, 0
	case nvme.LogSMART:
		return c.smartLog(r.Cmd.NSID())
	case nvme.LogFirmware:
		p := nvme.FirmwareLog{AFI: 1}
		nvme.PutPadded(p.FRS[0][:], c.sub.firmware)
		return p.AppendTo(nil), 0, 0
	case nvme.LogChangedNamespaces:
		p := c.changedNamespaces(retain)
		return p.AppendTo(nil), 0, 0
	case nvme.LogEffects:
		return c.effectsLog(), 0, 0
	case nvme.LogPersistent:
		return c.persistentLog(r.persistentAction(), r.logOffset())
	case nvme.LogFeatureEffects:
		return c.featureEffects(), 0, 0
	case nvme.LogMIEffects:
		return make([]byte, nvme.EffectsLogSize), 0, 0 // there is no management endpoint
	case nvme.LogSanitize:
		return c.sanitizeStatus(retain), 0, 0
	case nvme.LogReservation:
		return c.resvLog(look, retain), 0, 0
	}
	return c.anaLog(r.Cmd.LogLSP()&nvme.LSPGroupsOnly != 0, retain), 0, 0
}

// whileSanitizing reports whether a page may be read before a sanitize operation has succeeded (NVMe base, figure
// "Sanitize Operations and Format NVM Command – Admin Commands Allowed").
func whileSanitizing(lid nvme.LID) bool {
	switch lid {
	case nvme.LogError, nvme.LogSMART, nvme.LogChangedNamespaces, nvme.LogReservation, nvme.LogANA, nvme.LogSanitize:
		return true
	}
	return false
}

func (c *controller) hasLog(lid nvme.LID) bool {
	switch lid {
	case nvme.LogSupported, nvme.LogError, nvme.LogEffects, nvme.LogFeatureEffects, nvme.LogMIEffects:
		return true
	case nvme.LogPersistent:
		return !c.sub.discovery && c.t.store != nil
	case nvme.LogDiscovery:
		return c.sub.discovery
	case nvme.LogSMART, nvme.LogFirmware, nvme.LogChangedNamespaces, nvme.LogANA, nvme.LogReservation, nvme.LogSanitize:
		return !c.sub.discovery
	}
	return false
}

func (c *controller) supportedLogs() []byte {
	var p nvme.SupportedLogs
	for lid := range p {
		if c.hasLog(nvme.LID(lid)) {
			p[lid] = nvme.LogIsSupported
		}
	}
	if c.hasLog(nvme.LogPersistent) {
		p[nvme.LogPersistent] |= nvme.LogHasHeaderAction
	}
	return p.AppendTo(nil)
}

// featureEffects returns which features there are, and the scope of setting them.
func (c *controller) featureEffects() []byte {
	var p nvme.FeatureEffectsLog
	for fid := range p {
		caps, ok := c.feature(nvme.FID(fid))
		switch {
		case !ok:
		case caps&nvme.FeatureNamespace != 0:
			p[fid] = nvme.FeatureEffectSupported | nvme.FeatureScopeNamespace
		default:
			p[fid] = nvme.FeatureEffectSupported | nvme.FeatureScopeController
		}
	}
	return p.AppendTo(nil)
}

func (c *controller) effectsLog() []byte {
	var p nvme.EffectsLog
	for _, op := range commonOpcodes {
		p.Admin[op] = nvme.EffectSupported | nvme.EffectScopeController
	}
	if !c.sub.discovery {
		for op, e := range adminOpcodes {
			p.Admin[op] |= nvme.EffectSupported | e
		}
		for op, e := range ioOpcodes {
			p.IO[op] = nvme.EffectSupported | e // without a scope, of which Linux would warn ("unusual effects")
		}
	}
	if c.sub.managed != nil {
		for op, e := range managementOpcodes {
			p.Admin[op] = nvme.EffectSupported | e
		}
	}
	return p.AppendTo(nil)
}

// smartLog returns the health of the subsystem, or of one namespace. There is no wear, no spare and no temperature; the
// counts are real, and start with the target. Which commands each counts is defined by the NVM command set ("SMART Data
// Units Read Command", "SMART Host Read Command", "User Data Out Command").
func (c *controller) smartLog(nsid uint32) ([]byte, nvme.Status, uint16) {
	var n health
	if nsid == nvme.NSIDNone || nsid == nvme.NSIDAll {
		n = c.sub.health()
	} else if ns := c.namespace(nsid); ns != nil {
		n.add(ns)
	} else {
		return nil, nvme.StatusInvalidNamespace, offNSID
	}
	p := nvme.SMARTLog{
		AvailableSpare:   100,
		DataUnitsRead:    nvme.SMARTDataUnits(n.of[opRead].bytes + n.of[opCompare].bytes + n.of[opVerify].bytes),
		DataUnitsWritten: nvme.SMARTDataUnits(n.of[opWrite].bytes + n.of[opCopy].bytes),
		HostReads:        nvme.Uint128From(n.of[opRead].ops + n.of[opCompare].ops + n.of[opCopy].ops),
		HostWrites:       nvme.Uint128From(n.of[opWrite].ops + n.of[opCopy].ops),
		PowerCycles:      nvme.Uint128From(1),
		PowerOnHours:     nvme.Uint128From(uint64(time.Duration(c.t.Now()) / time.Hour)),
		MediaErrors:      nvme.Uint128From(n.media),
		ErrorLogEntries:  nvme.Uint128From(c.errors.total()),
	}
	return p.AppendTo(nil), 0, 0
}
