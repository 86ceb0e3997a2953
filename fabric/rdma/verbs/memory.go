package verbs

// Access is what others may do with a memory region or window, and what a QP allows.
type Access uint8

// Access flags (ibv_access_flags). Local read is always allowed.
const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
	AccessMWBind
	// AccessOnDemand is for memory with pages that may be missing, such as the mapping of a file that was truncated
	// (IBV_ACCESS_ON_DEMAND): a work request that accesses such a page fails with WCLocProtErr, or, if its data is
	// inline, when it is posted. RegMR may return ErrUnsupported, in particular if it is combined with access for peers
	// or for windows. A device that never supports it pins the pages that it registers, so that none goes missing.
	AccessOnDemand
	// AccessStreamed is a hint: this program won't soon read what is received there, so a device need not place it in
	// the processor's caches (the processing hint of TLPs that a DMA handle has, ibv_alloc_dmah).
	AccessStreamed
)

// PD is a protection domain: memory and QPs only work together within the same one.
type PD interface {
	Device() Device

	// RegMR registers buf. The region's addresses start at MR.Addr and span len(buf) bytes. buf must stay mapped until
	// Dereg; it is not copied.
	RegMR(buf []byte, access Access) (MR, error)

	// AllocMW makes a type 2 memory window, unbound. WRBindMW binds it. A device without such windows returns
	// ErrUnsupported, and ignores AccessMWBind.
	AllocMW() (MW, error)

	// CreateQP makes a queue pair in state RESET.
	CreateQP(init QPInitAttr) (QP, error)

	// Dealloc frees the domain; it returns ErrBusy while something in it exists.
	Dealloc() error
}

// MR is a registered memory region.
type MR interface {
	Addr() uint64 // first byte, as used in SGE.Addr and SendWR.RemoteAddr
	LKey() uint32
	RKey() uint32
	Dereg() error // its keys are invalid when this returns
}

// MW is a type 2 memory window: a range of an MR made accessible to one QP's peer under an R_Key that the peer, or the
// owner, can invalidate.
type MW interface {
	// RKey returns the key of the current binding, or, while unbound, the one that the next binding uses: WRBindMW
	// consumes it, and each invalidation moves on to a fresh one.
	RKey() uint32
	Dealloc() error
}

// SGE is one scatter/gather entry: Length bytes at Addr inside the region of LKey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}
