package target

import (
	"math/bits"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Byte offsets in Identify that errors refer to.
const (
	offCNS   = 40
	offCNTID = 42
	offCSI   = 47
)

// identify executes Identify.
func (r *Request) identify() {
	if r.mapSGL(nvme.PageSize) {
		r.withMemory(nvme.PageSize, (*Request).replyIdentify)
	}
}

func (r *Request) replyIdentify() {
	page, st, loc := r.identifyPage()
	if !st.OK() {
		r.fail(st, loc)
		return
	}
	r.replyWith(page)
}

// identifyPage makes the page, or returns what is wrong and in which byte.
func (r *Request) identifyPage() ([]byte, nvme.Status, uint16) {
	c := r.engine.q.ctrl
	cns := r.Cmd.CNS()
	switch {
	case cns == nvme.CNSController:
		return c.identifyController(), 0, 0
	case c.sub.discovery:
		return nil, nvme.StatusInvalidField, offCNS
	}
	switch cns {
	case nvme.CNSCommandSetActiveNSIDs, nvme.CNSCommandSetAllocated:
		if r.Cmd.IdentifyCSI() != nvme.CSINVM {
			return nil, nvme.StatusInvalidField, offCSI
		}
		return c.identifyActive(cns, r.Cmd.NSID())
	case nvme.CNSActiveNSIDs, nvme.CNSAllocatedNSIDs:
		return c.identifyActive(cns, r.Cmd.NSID())
	case nvme.CNSNamespace, nvme.CNSAllocatedNamespace, nvme.CNSIndependentNamespace, nvme.CNSDescriptors:
		return c.identifyOne(cns, r.Cmd.NSID())
	case nvme.CNSAttachedControllers, nvme.CNSControllers:
		return c.identifyControllers(cns, r.Cmd.NSID(), r.Cmd.CNTID())
	case nvme.CNSCommandSets:
		return c.identifyCommandSets(r.Cmd.CNTID())
	case nvme.CNSCommandSetNamespace, nvme.CNSCommandSetAllocatedNS, nvme.CNSCommandSetController:
		return c.identifyCommandSet(cns, r.Cmd.IdentifyCSI(), r.Cmd.NSID())
	}
	return nil, nvme.StatusInvalidField, offCNS
}

// identifyActive lists the namespaces that are attached to the controller, or all.
func (c *controller) identifyActive(cns nvme.CNS, after uint32) ([]byte, nvme.Status, uint16) {
	if after >= nvme.NSIDAll-1 {
		return nil, nvme.StatusInvalidNamespace, offNSID
	}
	all := c.all()
	if cns == nvme.CNSAllocatedNSIDs || cns == nvme.CNSCommandSetAllocated {
		all = c.sub.all()
	}
	var list nvme.NSIDList
	for _, ns := range all {
		if ns.nsid > after {
			list = append(list, ns.nsid)
		}
	}
	return list.AppendTo(nil), 0, 0
}

// identifyControllers lists the controllers of the subsystem, or those that a namespace is attached to, from an
// identifier on.
func (c *controller) identifyControllers(cns nvme.CNS, nsid uint32, from uint16) ([]byte, nvme.Status, uint16) {
	switch {
	case cns == nvme.CNSControllers: // whatever the NSID
	case nsid == nvme.NSIDAll:
		return nil, nvme.StatusInvalidField, offNSID
	case nsid == 0 || nsid > c.sub.nn():
		return nil, nvme.StatusInvalidNamespace, offNSID
	}
	var list nvme.ControllerList
	for _, other := range c.t.controllersOf(c.sub) {
		if other.id >= from && (cns == nvme.CNSControllers || other.namespace(nsid) != nil) {
			list = append(list, other.id)
		}
	}
	return list.AppendTo(nil), 0, 0
}

// identifyCommandSets lists the combinations of command sets that a controller can have: only the NVM set.
func (c *controller) identifyCommandSets(cntid uint16) ([]byte, nvme.Status, uint16) {
	if other := c.t.controller(cntid); cntid != nvme.CNTLIDDynamic && (other == nil || other.sub != c.sub) {
		return nil, nvme.StatusInvalidField, offCNTID
	}
	p := nvme.CommandSets{nvme.CommandSetNVM}
	return p.AppendTo(nil), 0, 0
}

// identifyOne makes the pages about one namespace. A namespace that is not active has empty pages, but no descriptors.
func (c *controller) identifyOne(cns nvme.CNS, nsid uint32) ([]byte, nvme.Status, uint16) {
	ns := c.namespace(nsid)
	if cns == nvme.CNSAllocatedNamespace {
		ns = c.sub.namespace(nsid)
	}
	switch {
	case nsid == nvme.NSIDAll && cns == nvme.CNSNamespace && c.sub.managed != nil:
		return c.commonFormats(), 0, 0
	case nsid == nvme.NSIDAll && cns == nvme.CNSIndependentNamespace && c.sub.managed != nil:
		p := nvme.IdentifyNamespaceIndependent{NMIC: nvme.NMICShared} // as in commonFormats
		return p.AppendTo(nil), 0, 0
	case nsid == 0 || nsid > c.sub.nn(), ns == nil && cns == nvme.CNSDescriptors:
		return nil, nvme.StatusInvalidNamespace, offNSID
	case ns == nil:
		return make([]byte, nvme.PageSize), 0, 0
	case cns == nvme.CNSDescriptors:
		d := nvme.NSDescriptors{UUID: ns.uuid, NGUID: ns.nguid, EUI64: ns.eui64, CSI: nvme.CSINVM, HasCSI: true}
		return d.AppendTo(nil), 0, 0
	case cns == nvme.CNSIndependentNamespace:
		p := nvme.IdentifyNamespaceIndependent{
			NMIC: ns.nmic(), RESCAP: ns.rescap(), ANAGRPID: ns.anaGroup, NSATTR: ns.attributes(), NSTAT: nvme.NSTATReady,
		}
		return p.AppendTo(nil), 0, 0
	}
	return ns.identify(c.anaState(ns.anaGroup)), 0, 0
}

func (c *controller) identifyCommandSet(cns nvme.CNS, csi nvme.CSI, nsid uint32) ([]byte, nvme.Status, uint16) {
	switch {
	case csi != nvme.CSINVM:
		return nil, nvme.StatusInvalidField, offCSI
	case cns == nvme.CNSCommandSetController:
		p := nvme.IdentifyControllerNVM{VSL: verifyLimit} // other limits are those of every command
		return p.AppendTo(nil), 0, 0
	case nsid == nvme.NSIDAll && cns == nvme.CNSCommandSetNamespace && c.sub.managed != nil: // what all namespaces have in common
	case nsid == 0 || nsid > c.sub.nn():
		return nil, nvme.StatusInvalidNamespace, offNSID
	}
	return make([]byte, nvme.PageSize), 0, 0 // nothing beyond the common page
}

func (ns *Namespace) rescap() nvme.RESCAP {
	caps := nvme.RESCAPAllTypes | nvme.RESCAPIgnoreKey
	if ns.store() != nil {
		caps |= nvme.RESCAPPersist
	}
	return caps
}

func (ns *Namespace) attributes() nvme.NSATTR {
	if ns.protected.Load() {
		return nvme.NSATTRWriteProtected
	}
	return 0
}

func (ns *Namespace) nmic() nvme.NMIC {
	if ns.private {
		return 0
	}
	return nvme.NMICShared
}

// blockShift returns the LBADS of a block size.
func blockShift(size int) uint8 { return uint8(bits.TrailingZeros(uint(size))) }

// identify returns Identify Namespace for a controller for which the namespace's group is in state ana.
func (ns *Namespace) identify(ana nvme.ANAState) []byte {
	n := ns.blocks.Load()
	p := nvme.IdentifyNamespace{
		NSZE: n, NCAP: n, NUSE: n,
		NSFEAT:   nvme.NSFEATOptPerf,
		NMIC:     ns.nmic(),
		RESCAP:   ns.rescap(),
		NSATTR:   ns.attributes(),
		ANAGRPID: ns.anaGroup,
		NGUID:    ns.nguid, EUI64: ns.eui64,
		NVMCAP: nvme.Uint128From(n << ns.shift),
	}
	if ana == nvme.ANAInaccessible || ana == nvme.ANAPersistentLoss {
		p.NUSE, p.NVMCAP = 0, nvme.Uint128{} // not known there; hosts need the size nevertheless
	}
	formats := ns.formats()
	p.NLBAF, p.FLBAS = uint8(len(formats)-1), uint8(ns.format())
	for i, block := range formats {
		p.LBAF[i].LBADS = blockShift(block)
	}
	p.MSSRL, p.MCL, p.MSRC = ns.copyLimits()
	p.DLFEAT = nvme.DLFEATWriteZeroes // for every namespace or for none
	if ns.info.ZeroAfterDiscard {
		p.DLFEAT |= nvme.DLFEATReadZero
	}
	if a := ns.info.AtomicBlocks; a > 1 {
		p.NSFEAT |= nvme.NSFEATAtomic
		p.NAWUN = uint16(min(a, 1<<16) - 1)
		p.NAWUPF = p.NAWUN
	}
	granule := uint16(min(max(ns.info.PhysBlock>>ns.shift, 1), 1<<16) - 1)
	p.NPWG, p.NPWA, p.NPDG, p.NPDA, p.NOWS = granule, granule, granule, granule, granule
	return p.AppendTo(nil)
}

func (c *controller) identifyController() []byte {
	p := nvme.IdentifyController{
		MDTS:   mdts(c.attr.MaxTransfer),
		CNTLID: c.id,
		VER:    version,
		OAES:   c.supportedEvents(),
		CTRATT: nvme.CTRATTTBKAS,
		ACL:    maxAborts - 1,
		AERL:   maxEventRequests - 1,
		FRMW:   1<<1 | 1, // one slot, read-only
		LPA:    nvme.LPAEffects | nvme.LPAExtendedData | nvme.LPASupported,
		ELPE:   errorLogEntries - 1,
		KAS:    uint16(keepAliveUnit.Milliseconds() / 100),
		MAXCMD: uint16(min(c.queueDepth(), 1<<16-1)),
		SGLS:   c.attr.SGLS,
		IOCCSZ: uint32(nvme.CommandSize+c.attr.InCapsule) / 16,
		IORCSZ: nvme.CompletionSize / 16,
		MSDBD:  1,
	}
	nvme.PutPadded(p.SN[:], c.sub.serial)
	nvme.PutPadded(p.MN[:], c.sub.model)
	nvme.PutPadded(p.FR[:], c.sub.firmware)
	_ = nvme.PutText(p.SUBNQN[:], c.sub.nqn) // its length was checked
	p.CNTRLTYPE = nvme.ControllerDiscovery
	if !c.sub.discovery {
		c.identifyIO(&p)
	}
	return p.AppendTo(nil)
}

// identifyIO adds what an I/O controller has in addition to a discovery controller. AWUN and AWUPF stay 0, which means
// one logical block: every namespace guarantees that; those that guarantee more say so themselves (NAWUN, NAWUPF).
func (c *controller) identifyIO(p *nvme.IdentifyController) {
	p.CNTRLTYPE = nvme.ControllerIO
	p.CMIC = nvme.CMICMultiPort | nvme.CMICMultiCtrl | nvme.CMICANA
	p.CTRATT |= nvme.CTRATTRHII
	p.ANATT, p.ANACAP, p.ANAGRPMAX, p.NANAGRPID = anaTransition, anaCaps, MaxANAGroup, MaxANAGroup
	p.CTRATT |= nvme.CTRATTHostID128
	p.LPA |= nvme.LPASMARTPerNS
	p.WCTEMP, p.CCTEMP = warningTemperature, criticalTemperature
	p.SQES, p.CQES = 0x66, 0x44
	p.NN, p.MNAN = c.sub.nn(), c.sub.nn()
	p.ONCS = nvme.ONCSCompare | nvme.ONCSDSM | nvme.ONCSWriteZeroes | nvme.ONCSTimestamp | nvme.ONCSVerify | nvme.ONCSCopy |
		nvme.ONCSReservations | nvme.ONCSWriteUncorrectable
	p.CDFS = 1 << nvme.CopyFormat0
	p.FUSES = nvme.FUSESCompareWrite
	// Compare and Write is atomic whatever its length; this is the most that all block sizes allow.
	p.ACWU = uint16(max(c.attr.MaxTransfer/blockdev.MaxBlockSize, 1) - 1)
	p.VWC = c.identifyCache()
	p.OACS, p.FNA = nvme.OACSFormat, nvme.FNANoBroadcast
	p.SANICAP = sanicap
	if c.sub.managed != nil {
		p.OACS |= nvme.OACSNSManagement
		p.ANACAP |= anaCapCreate
	}
	if c.t.store != nil {
		p.LPA |= nvme.LPAPersistent
		p.PELS = persistentUnits
	}
	p.NWPC = 1
	p.OFCS = nvme.OFCSDisconnect
	p.UNVMCAP = nvme.Uint128From(c.sub.unallocated())
	p.TNVMCAP = p.UNVMCAP
	for _, ns := range c.sub.all() {
		p.TNVMCAP = p.TNVMCAP.Plus(ns.blocks.Load() << ns.shift)
	}
}

// mdts returns MDTS for a transport that moves that many bytes with one command.
func mdts(bytes int) uint8 {
	return uint8(bits.Len(uint(max(bytes, nvme.PageSize)/nvme.PageSize)) - 1)
}
