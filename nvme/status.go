package nvme

// Status is the status field of a completion without the phase bit:
// SC in bits 7:0, SCT in 10:8, CRD in 12:11, More in 13, DNR in 14.
// Success is zero. Any other Status is also an error, which a StatusError matches if it has the same Code.
type Status uint16

// Flags that may be OR'ed into a status.
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
	StatusPowerLossAbort          Status = 0x005
	StatusInternalError           Status = 0x006
	StatusAbortRequested          Status = 0x007
	StatusAbortSQDeleted          Status = 0x008
	StatusAbortFailedFused        Status = 0x009
	StatusAbortMissingFused       Status = 0x00a
	StatusInvalidNamespace        Status = 0x00b
	StatusCommandSequence         Status = 0x00c
	StatusSGLSegmentInvalid       Status = 0x00d
	StatusSGLCountInvalid         Status = 0x00e
	StatusSGLLengthInvalid        Status = 0x00f
	StatusSGLMetadataLength       Status = 0x010
	StatusSGLTypeInvalid          Status = 0x011
	StatusCMBInvalid              Status = 0x012
	StatusPRPOffsetInvalid        Status = 0x013
	StatusAtomicWriteExceeded     Status = 0x014
	StatusOperationDenied         Status = 0x015
	StatusSGLOffsetInvalid        Status = 0x016
	StatusHostIDInconsistent      Status = 0x018
	StatusKATOExpired             Status = 0x019
	StatusKATOInvalid             Status = 0x01a
	StatusAbortPreempt            Status = 0x01b
	StatusSanitizeFailed          Status = 0x01c
	StatusSanitizeInProgress      Status = 0x01d
	StatusSGLGranularityInvalid   Status = 0x01e
	StatusCMBCommandUnsupported   Status = 0x01f
	StatusNamespaceWriteProtected Status = 0x020
	StatusCommandInterrupted      Status = 0x021
	StatusTransientTransport      Status = 0x022
	StatusCommandProhibited       Status = 0x023
	StatusAdminMediaNotReady      Status = 0x024
	StatusHostIDNotInitialized    Status = 0x027
	StatusLBAOutOfRange           Status = 0x080
	StatusCapacityExceeded        Status = 0x081
	StatusNamespaceNotReady       Status = 0x082
	StatusReservationConflict     Status = 0x083
	StatusFormatInProgress        Status = 0x084
)

// Command specific status (SCT 1).
const (
	StatusCQInvalid                Status = 0x100
	StatusQIDInvalid               Status = 0x101
	StatusQueueSizeInvalid         Status = 0x102
	StatusAbortLimitExceeded       Status = 0x103
	StatusAsyncEventLimit          Status = 0x105
	StatusInvalidFirmwareSlot      Status = 0x106
	StatusInvalidFirmwareImage     Status = 0x107
	StatusInvalidLogPage           Status = 0x109
	StatusInvalidFormat            Status = 0x10a
	StatusFeatureNotSaveable       Status = 0x10d
	StatusFeatureNotChangeable     Status = 0x10e
	StatusFeatureNotNamespace      Status = 0x10f
	StatusInsufficientCapacity     Status = 0x115
	StatusNSIDUnavailable          Status = 0x116
	StatusNamespaceAlreadyAttached Status = 0x118
	StatusNamespacePrivate         Status = 0x119
	StatusNamespaceNotAttached     Status = 0x11a
	StatusThinNotSupported         Status = 0x11b
	StatusInvalidControllerList    Status = 0x11c
	StatusSelfTestInProgress       Status = 0x11d
	StatusInvalidControllerID      Status = 0x11f
	StatusANAGroupInvalid          Status = 0x124
	StatusANAAttachFailed          Status = 0x125
	StatusCommandSetNotSupported   Status = 0x129
	StatusConflictingAttributes    Status = 0x180 // I/O commands; Connect: StatusConnectFormat
	StatusInvalidProtectionInfo    Status = 0x181 // I/O commands; Connect: StatusConnectBusy
	StatusWriteToReadOnly          Status = 0x182 // I/O commands; Connect: StatusConnectInvalidParameter
	StatusCommandSizeLimit         Status = 0x183 // I/O commands; Connect: StatusConnectRestartDiscovery
	StatusOverlappingRange         Status = 0x187
	StatusConnectFormat            Status = 0x180
	StatusConnectBusy              Status = 0x181
	StatusConnectInvalidParameter  Status = 0x182
	StatusConnectRestartDiscovery  Status = 0x183
	StatusConnectInvalidHost       Status = 0x184
	StatusInvalidQueueType         Status = 0x185
	StatusDiscoveryRestart         Status = 0x190
	StatusAuthenticationRequired   Status = 0x191
)

// Media and data integrity errors (SCT 2).
const (
	StatusWriteFault      Status = 0x280
	StatusUnrecoveredRead Status = 0x281
	StatusGuardCheck      Status = 0x282
	StatusApplicationTag  Status = 0x283
	StatusReferenceTag    Status = 0x284
	StatusCompareFailure  Status = 0x285
	StatusAccessDenied    Status = 0x286
	StatusDeallocatedRead Status = 0x287
)

// Path related status (SCT 3). The host itself makes StatusHostPathError and StatusHostAborted.
const (
	StatusInternalPathError   Status = 0x300
	StatusANAPersistentLoss   Status = 0x301
	StatusANAInaccessible     Status = 0x302
	StatusANATransition       Status = 0x303
	StatusControllerPathError Status = 0x360
	StatusHostPathError       Status = 0x370
	StatusHostAborted         Status = 0x371
)

// Code is the status without More, DNR and CRD: SCT and SC, the form used in tables.
func (s Status) Code() Status { return s & 0x7ff }

// DNR reports whether Do Not Retry is set.
func (s Status) DNR() bool { return s&StatusDNR != 0 }

// OK reports whether the status is success.
func (s Status) OK() bool { return s.Code() == StatusSuccess }

// SCT is the status code type: 0 generic, 1 command specific, 2 media, 3 path, 7 vendor.
func (s Status) SCT() uint8 { return uint8(s >> 8 & 7) }

// CRD is the command retry delay: which of CRDT1 to CRDT3 applies, 0 for none.
func (s Status) CRD() uint8 { return uint8(s >> 11 & 3) }
