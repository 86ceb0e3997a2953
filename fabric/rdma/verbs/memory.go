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
	// AccessOnDemand is of memory whose pages may be missing, as those of a file's mapping that was cut
	// (IBV_ACCESS_ON_DEMAND): a work request that meets such a page fails with WCLocProtErr, or as it is posted
	// where its data is inline. With access for peers, or for windows, RegMR may give ErrUnsupported.
	AccessOnDemand
	// AccessStreamed is a hint: what is received there isn't read soon by this program, so that a device needn't have it
	// in the processor's caches (the processing hint of TLPs that a DMA handle has, ibv_alloc_dmah).
	AccessStreamed
)

// PD is a protection domain: memory and QPs work together only inside one.
type PD interface {
	Device() Device

	// RegMR registers buf. The region's addresses run from MR.Addr for len(buf) bytes.
	// buf must stay mapped until Dereg; it is not copied.
	RegMR(buf []byte, access Access) (MR, error)

	// AllocMW makes a type 2 memory window, unbound. It is bound by WRBindMW.
	AllocMW() (MW, error)

	// CreateQP makes a queue pair in state RESET.
	CreateQP(init QPInitAttr) (QP, error)

	// Dealloc frees the domain; ErrBusy while something in it exists.
	Dealloc() error
}

// MR is a registered memory region.
type MR interface {
	Addr() uint64 // first byte, as SGE.Addr and SendWR.RemoteAddr count
	Len() int
	LKey() uint32
	RKey() uint32
	Dereg() error // its keys are dead when this returns
}

// MW is a type 2 memory window: a range of an MR lent to one QP's peer under an R_Key that
// the peer, or the owner, can invalidate.
type MW interface {
	// RKey is the key of the present binding, or, while unbound, the one that the next
	// binding takes: WRBindMW consumes it, and each invalidation moves on to a fresh one.
	RKey() uint32
	Dealloc() error
}

// SGE is one scatter/gather entry: Length bytes at Addr inside the region of LKey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}
