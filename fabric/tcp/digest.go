package tcp

import (
	"runtime/debug"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// digestOnDemand is pdu.UpdateDigest over memory whose pages may be missing; ok is false if one is.
func digestOnDemand(crc uint32, b []byte) (sum uint32, ok bool) {
	ok = true
	defer mem.Caught(&ok, debug.SetPanicOnFault(true), b)
	return pdu.UpdateDigest(crc, b), ok
}
