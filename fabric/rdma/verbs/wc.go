package verbs

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
)

// WC is a work completion (ibv_wc). If Status is not WCSuccess, only WRID, Status and QPNum are
// valid.
type WC struct {
	WRID            uint64
	Status          WCStatus
	Opcode          WCOpcode
	Flags           WCFlags
	ByteLen         uint32 // bytes received or read
	QPNum           uint32
	ImmData         uint32 // WCWithImm: the value in the peer's SendWR
	InvalidatedRKey uint32 // WCWithInv
}

// CQ is a completion queue.
type CQ interface {
	// Poll removes up to len(wc) completions, oldest first, and returns how many.
	Poll(wc []WC) int
	// ReqNotify arms the CQ: the handler will be called once, for the next completion. It
	// returns true if completions are already there: poll again, as they may not cause a call.
	ReqNotify() (missed bool)
	Destroy() error
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
	WCRetryExcErr:    "transport retry counter exceeded: the peer does not answer, or some packets do not get through",
	WCRNRRetryExcErr: "RNR retry counter exceeded: the peer posts no receives",
	WCRemAbortErr:    "remote aborted",
	WCFatalErr:       "fatal error",
	WCRespTimeoutErr: "response timeout",
	WCGeneralErr:     "general error",
}

// String returns a description of the status, as ibv_wc_status_str does.
func (s WCStatus) String() string {
	if int(s) < len(wcStatusText) {
		return wcStatusText[s]
	}
	return "unknown status"
}
