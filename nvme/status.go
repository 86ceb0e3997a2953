package nvme

// Status is the status field of a completion without the phase bit:
// SC in bits 7:0, SCT in 10:8, CRD in 12:11, More in 13, DNR in 14.
// Success is zero. A Status that is not success is an error (see Err).
type Status uint16

// Flags that may be or'ed onto a status.
const (
	StatusMore Status = 1 << 13
	StatusDNR  Status = 1 << 14
)

// Generic command status (SCT 0).
const (
	StatusSuccess                 Status = 0x000
	StatusInvalidOpcode           Status = 0x001
	StatusInvalidField            Status = 0x002
	StatusCIDConflict             Status = 0x003
	StatusDataTransferError       Status = 0x004
	StatusInternalError           Status = 0x006
	StatusAbortRequested          Status = 0x007
	StatusAbortSQDeleted          Status = 0x008
	StatusInvalidNamespace        Status = 0x00b
	StatusCommandSequence         Status = 0x00c
	StatusSGLLengthInvalid        Status = 0x00f
	StatusSGLTypeInvalid          Status = 0x011
	StatusSGLOffsetInvalid        Status = 0x016
	StatusHostIDInconsistent      Status = 0x018
	StatusKATOExpired             Status = 0x019
	StatusKATOInvalid             Status = 0x01a
	StatusNamespaceWriteProtected Status = 0x020
	StatusLBAOutOfRange           Status = 0x080
	StatusCapacityExceeded        Status = 0x081
	StatusNamespaceNotReady       Status = 0x082
	StatusReservationConflict     Status = 0x083
)

// Command specific status (SCT 1).
const (
	StatusAbortLimitExceeded      Status = 0x103
	StatusAsyncEventLimit         Status = 0x105
	StatusInvalidLogPage          Status = 0x109
	StatusFeatureNotSaveable      Status = 0x10d
	StatusFeatureNotChangeable    Status = 0x10e
	StatusFeatureNotNamespace     Status = 0x10f
	StatusConnectFormat           Status = 0x180
	StatusConnectBusy             Status = 0x181
	StatusConnectInvalidParameter Status = 0x182
	StatusConnectRestartDiscovery Status = 0x183
	StatusConnectInvalidHost      Status = 0x184
	StatusDiscoveryRestart        Status = 0x190
	StatusAuthenticationRequired  Status = 0x191
)

// Media and data integrity errors (SCT 2).
const (
	StatusWriteFault      Status = 0x280
	StatusUnrecoveredRead Status = 0x281
	StatusCompareFailure  Status = 0x285
	StatusAccessDenied    Status = 0x286
	StatusDeallocatedRead Status = 0x287
)

// Path related status (SCT 3). HostPathError and HostAborted are made by the host itself.
const (
	StatusInternalPathError Status = 0x300
	StatusANAPersistentLoss Status = 0x301
	StatusANAInaccessible   Status = 0x302
	StatusANATransition     Status = 0x303
	StatusHostPathError     Status = 0x370
	StatusHostAborted       Status = 0x371
)

// Code is the status without More, DNR and CRD: SCT and SC, the form in which tables list it.
func (s Status) Code() Status { return s & 0x7ff }

// DNR reports whether Do Not Retry is set.
func (s Status) DNR() bool { return s&StatusDNR != 0 }

// OK reports success.
func (s Status) OK() bool { return s.Code() == StatusSuccess }
