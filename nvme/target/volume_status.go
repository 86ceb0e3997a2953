package target

import (
	"errors"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// volumeStatus returns the status for a volume's error. Do Not Retry is set if retrying can't help: a medium may
// recover, a busy volume becomes free, and an unreachable one may be reached again.
func volumeStatus(op blockdev.Op, err error) nvme.Status {
	switch {
	case err == nil:
		return nvme.StatusSuccess
	case errors.Is(err, blockdev.ErrMedium):
		if op == blockdev.OpRead {
			return nvme.StatusUnrecoveredRead
		}
		return nvme.StatusWriteFault
	case errors.Is(err, blockdev.ErrCapacity):
		return nvme.StatusCapacityExceeded | nvme.StatusDNR
	case errors.Is(err, blockdev.ErrReadOnly):
		if op == blockdev.OpRead { // it can't be read either: EACCES, from whatever holds the file
			return nvme.StatusAccessDenied | nvme.StatusDNR
		}
		return nvme.StatusNamespaceWriteProtected | nvme.StatusDNR
	case errors.Is(err, blockdev.ErrRange):
		return nvme.StatusLBAOutOfRange | nvme.StatusDNR
	case errors.Is(err, blockdev.ErrGone):
		return nvme.StatusNamespaceNotReady | nvme.StatusDNR
	case errors.Is(err, blockdev.ErrBusy), errors.Is(err, blockdev.ErrUnreachable):
		return nvme.StatusNamespaceNotReady
	case errors.Is(err, blockdev.ErrUnwanted):
		return nvme.StatusAbortSQDeleted
	case errors.Is(err, blockdev.ErrUnsupported):
		return nvme.StatusInvalidOpcode | nvme.StatusDNR
	}
	return nvme.StatusInternalError | nvme.StatusDNR
}
