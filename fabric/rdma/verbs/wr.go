package verbs

// WROpcode is the operation of a send work request (ibv_wr_opcode).
type WROpcode uint8

// Operations.
const (
	WRSend WROpcode = iota + 1
	WRSendWithImm
	WRSendWithInv
	WRRDMAWrite
	WRRDMAWriteWithImm
	WRRDMARead
	WRAtomicCmpAndSwp
	WRAtomicFetchAndAdd
	WRBindMW
	WRLocalInv
)

// SendFlags modify a send work request (ibv_send_flags).
type SendFlags uint8

// Flags.
const (
	SendSignaled  SendFlags = 1 << iota // completes on the CQ
	SendSolicited                       // the peer's CQ event is a solicited one
	SendFence                           // waits for all earlier READs and atomics
	SendInline                          // the data is copied at post, whatever access its L_Keys give
)

// SendWR is one send work request (ibv_send_wr). Only the fields of its opcode are read.
type SendWR struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	SGList []SGE

	RemoteAddr uint64 // RDMA and atomics
	RKey       uint32 // RDMA and atomics
	ImmData    uint32 // …WithImm, as a number: 4 bytes big-endian on the wire

	InvalidateRKey uint32 // WRSendWithInv, WRLocalInv

	// Atomics treat the 8 bytes at RemoteAddr as a number in the byte order of that host, and store its previous value
	// at the only entry of SGList, in the byte order of this one.
	CompareAdd uint64 // compare value or addend
	Swap       uint64 // WRAtomicCmpAndSwp

	MW   MW     // WRBindMW: uses the key MW.RKey
	Bind MWBind // WRBindMW
}

// MWBind is the range that a memory window exposes. The MR needs AccessMWBind.
type MWBind struct {
	MR     MR
	Addr   uint64 // within the MR, as in MR.Addr
	Length uint64 // bytes
	Access Access
}

// RecvWR is one receive work request (ibv_recv_wr).
type RecvWR struct {
	WRID   uint64
	SGList []SGE
}
