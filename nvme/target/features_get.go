package target

import "github.com/nvme-anywhere/nvmeof/nvme"

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

// featureValue returns the value of a feature in fs. On an error, and for a feature that comes with data, it responds
// and returns false.
func (r *Request) featureValue(f nvme.FID, fs *features, sel nvme.SEL) (uint32, bool) {
	c := r.engine.q.ctrl
	switch f {
	case nvme.FeatArbitration:
		return fs.arbitration, true
	case nvme.FeatPower:
		return fs.power, true
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
		r.replyFeature(fs.now().AppendTo(nil))
		return 0, false
	case nvme.FeatHostID:
		if r.Cmd.CDW(11)&nvme.HostIDExtended == 0 {
			r.fail(nvme.StatusInvalidField, offCDW11) // Fabrics has only 128 bits
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

// nsFeature returns the value of feature 05h, 82h or 83h of a namespace.
func (r *Request) nsFeature(f nvme.FID, fs *features, sel nvme.SEL) (uint32, bool) {
	c := r.engine.q.ctrl
	if r.Cmd.NSID() == nvme.NSIDAll {
		r.fail(noNamespace(f), offNSID)
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
