package nvme

import "fmt"

// statusNames holds the name of each status, by Code. For a code that means one thing for Connect
// and another for I/O commands it holds the meaning for Connect, which is by far the more common
// on Fabrics; nameFor tells them apart.
var statusNames = map[Status]string{
	StatusSuccess:                  "success",
	StatusInvalidOpcode:            "invalid command opcode",
	StatusInvalidField:             "invalid field in command",
	StatusCIDConflict:              "command ID conflict",
	StatusDataTransferError:        "data transfer error",
	StatusPowerLossAbort:           "commands aborted due to power loss",
	StatusInternalError:            "internal error",
	StatusAbortRequested:           "command abort requested",
	StatusAbortSQDeleted:           "command aborted due to SQ deletion",
	StatusAbortFailedFused:         "command aborted due to failed fused command",
	StatusAbortMissingFused:        "command aborted due to missing fused command",
	StatusInvalidNamespace:         "invalid namespace or format",
	StatusCommandSequence:          "command sequence error",
	StatusSGLSegmentInvalid:        "invalid SGL segment descriptor",
	StatusSGLCountInvalid:          "invalid number of SGL descriptors",
	StatusSGLLengthInvalid:         "data SGL length invalid",
	StatusSGLMetadataLength:        "metadata SGL length invalid",
	StatusSGLTypeInvalid:           "SGL descriptor type invalid",
	StatusCMBInvalid:               "invalid use of controller memory buffer",
	StatusPRPOffsetInvalid:         "PRP offset invalid",
	StatusAtomicWriteExceeded:      "atomic write unit exceeded",
	StatusOperationDenied:          "operation denied",
	StatusSGLOffsetInvalid:         "SGL offset invalid",
	StatusHostIDInconsistent:       "host identifier inconsistent format",
	StatusKATOExpired:              "keep alive timer expired",
	StatusKATOInvalid:              "keep alive timeout invalid",
	StatusAbortPreempt:             "command aborted due to preempt and abort",
	StatusSanitizeFailed:           "sanitize failed",
	StatusSanitizeInProgress:       "sanitize in progress",
	StatusSGLGranularityInvalid:    "SGL data block granularity invalid",
	StatusCMBCommandUnsupported:    "command not supported for queue in CMB",
	StatusNamespaceWriteProtected:  "namespace is write protected",
	StatusCommandInterrupted:       "command interrupted",
	StatusTransientTransport:       "transient transport error",
	StatusCommandProhibited:        "command prohibited by command and feature lockdown",
	StatusAdminMediaNotReady:       "admin command media not ready",
	StatusHostIDNotInitialized:     "host identifier not initialized",
	StatusLBAOutOfRange:            "LBA out of range",
	StatusCapacityExceeded:         "capacity exceeded",
	StatusNamespaceNotReady:        "namespace not ready",
	StatusReservationConflict:      "reservation conflict",
	StatusFormatInProgress:         "format in progress",
	StatusCQInvalid:                "completion queue invalid",
	StatusQIDInvalid:               "invalid queue identifier",
	StatusQueueSizeInvalid:         "invalid queue size",
	StatusAbortLimitExceeded:       "abort command limit exceeded",
	StatusAsyncEventLimit:          "asynchronous event request limit exceeded",
	StatusInvalidFirmwareSlot:      "invalid firmware slot",
	StatusInvalidFirmwareImage:     "invalid firmware image",
	StatusInvalidLogPage:           "invalid log page",
	StatusInvalidFormat:            "invalid format",
	StatusFeatureNotSaveable:       "feature identifier not saveable",
	StatusFeatureNotChangeable:     "feature not changeable",
	StatusFeatureNotNamespace:      "feature not namespace specific",
	StatusInsufficientCapacity:     "namespace insufficient capacity",
	StatusNSIDUnavailable:          "namespace identifier unavailable",
	StatusNamespaceAlreadyAttached: "namespace already attached",
	StatusNamespacePrivate:         "namespace is private",
	StatusNamespaceNotAttached:     "namespace not attached",
	StatusThinNotSupported:         "thin provisioning not supported",
	StatusInvalidControllerList:    "controller list invalid",
	StatusSelfTestInProgress:       "device self-test in progress",
	StatusInvalidControllerID:      "invalid controller identifier",
	StatusANAGroupInvalid:          "ANA group identifier invalid",
	StatusANAAttachFailed:          "ANA attach failed",
	StatusCommandSetNotSupported:   "I/O command set not supported",
	StatusConnectFormat:            "connect incompatible format",
	StatusConnectBusy:              "connect controller busy",
	StatusConnectInvalidParameter:  "connect invalid parameters",
	StatusConnectRestartDiscovery:  "connect restart discovery",
	StatusConnectInvalidHost:       "connect invalid host",
	StatusOverlappingRange:         "overlapping I/O range",
	StatusInvalidQueueType:         "invalid queue type",
	StatusDiscoveryRestart:         "discovery restart",
	StatusAuthenticationRequired:   "authentication required",
	StatusWriteFault:               "write fault",
	StatusUnrecoveredRead:          "unrecovered read error",
	StatusGuardCheck:               "end-to-end guard check error",
	StatusApplicationTag:           "end-to-end application tag check error",
	StatusReferenceTag:             "end-to-end reference tag check error",
	StatusCompareFailure:           "compare failure",
	StatusAccessDenied:             "access denied",
	StatusDeallocatedRead:          "deallocated or unwritten logical block",
	StatusInternalPathError:        "internal path error",
	StatusANAPersistentLoss:        "asymmetric access persistent loss",
	StatusANAInaccessible:          "asymmetric access inaccessible",
	StatusANATransition:            "asymmetric access transition",
	StatusControllerPathError:      "controller pathing error",
	StatusHostPathError:            "host pathing error",
	StatusHostAborted:              "command aborted by host",
}

// ioStatusNames holds the meanings of those codes for I/O commands.
var ioStatusNames = map[Status]string{
	StatusConflictingAttributes: "conflicting attributes",
	StatusInvalidProtectionInfo: "invalid protection information",
	StatusWriteToReadOnly:       "attempted write to read only range",
	StatusCommandSizeLimit:      "command size limit exceeded",
}

// String returns the specification's name of the status, in lower case, with "do not retry" if
// DNR is set.
func (s Status) String() string {
	name, ok := statusNames[s.Code()]
	if !ok {
		name = fmt.Sprintf("status %03xh", uint16(s.Code()))
	}
	return name + s.retry()
}

func (s Status) retry() string {
	if s.DNR() {
		return " (do not retry)"
	}
	return ""
}

// nameFor is String, but for the status of an I/O command if io is set.
func (s Status) nameFor(io bool) string {
	if name, ok := ioStatusNames[s.Code()]; ok && io {
		return name + s.retry()
	}
	return s.String()
}
