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
	SendInline                          // the data is copied at post; L_Keys are not looked at
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

	CompareAdd uint64 // atomics: compare value or addend
	Swap       uint64 // WRAtomicCmpAndSwp

	MW   MW     // WRBindMW: takes the key MW.RKey
	Bind MWBind // WRBindMW

	AH AH // UD
}

// MWBind is the range that a memory window shows. The MR needs AccessMWBind.
type MWBind struct {
	MR     MR
	Addr   uint64
	Length uint64
	Access Access
}

// RecvWR is one receive work request (ibv_recv_wr).
type RecvWR struct {
	WRID   uint64
	SGList []SGE
}

// WCStatus is how a work request ended (ibv_wc_status).
type WCStatus uint8

// Statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCRemAbortErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
)

// WCOpcode is the operation that completed (ibv_wc_opcode).
type WCOpcode uint8

// Completed operations.
const (
	WCSend WCOpcode = iota
	WCRDMAWrite
	WCRDMARead
	WCCompSwap
	WCFetchAdd
	WCBindMW
	WCLocalInv
	WCRecv
	WCRecvRDMAWithImm
)

// WCFlags says which optional fields of a WC are set (ibv_wc_flags).
type WCFlags uint8

// Flags.
const (
	WCWithImm WCFlags = 1 << iota
	WCWithInv
	WCGRH
)

// WC is a work completion (ibv_wc). When Status is not WCSuccess only WRID, Status, QPNum
// and VendorErr are valid.
type WC struct {
	WRID            uint64
	Status          WCStatus
	Opcode          WCOpcode
	Flags           WCFlags
	ByteLen         uint32 // bytes received or read
	QPNum           uint32
	SrcQP           uint32 // UD
	ImmData         uint32
	InvalidatedRKey uint32
	VendorErr       uint32
}

// CQ is a completion queue.
type CQ interface {
	// Poll moves up to len(wc) completions, oldest first, and says how many.
	Poll(wc []WC) int
	// ReqNotify arms the CQ: the handler will be called once, for the next completion.
	// It reports true where completions are already there: poll again, they may give no call.
	ReqNotify() (missed bool)
	Destroy() error
}

// AH is an address handle: where a UD send goes.
type AH struct {
	Remote    GID
	RemoteQPN uint32
	QKey      uint32
}

var wcStatusText = [...]string{
	WCSuccess:        "success",
	WCLocLenErr:      "local length error",
	WCLocQPOpErr:     "local QP operation error",
	WCLocProtErr:     "local protection error",
	WCWRFlushErr:     "work request flushed",
	WCMWBindErr:      "memory window bind error",
	WCBadRespErr:     "bad response",
	WCLocAccessErr:   "local access error",
	WCRemInvReqErr:   "remote invalid request",
	WCRemAccessErr:   "remote access error",
	WCRemOpErr:       "remote operation error",
	WCRetryExcErr:    "transport retry counter exceeded: the peer does not answer",
	WCRNRRetryExcErr: "RNR retry counter exceeded: the peer posts no receives",
	WCRemAbortErr:    "remote aborted",
	WCFatalErr:       "fatal error",
	WCRespTimeoutErr: "response timeout",
	WCGeneralErr:     "general error",
}

// String describes the status as ibv_wc_status_str does.
func (s WCStatus) String() string {
	if int(s) < len(wcStatusText) {
		return wcStatusText[s]
	}
	return "unknown status"
}
