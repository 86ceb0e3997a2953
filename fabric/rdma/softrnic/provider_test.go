package softrnic_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs/verbstest"
)

// TestProvider: software RNICs keep the promises of package verbs.
func TestProvider(t *testing.T) {
	open := func(t *testing.T) verbstest.RNIC {
		nic, err := softrnic.OpenFor(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nic.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		})
		return verbstest.RNIC{ConnectionManager: nic, Addr: nic.Device().Attr().Addr, Close: nic.Close}
	}
	verbstest.Run(t, verbstest.Config{New: func(t *testing.T) (host, target verbstest.RNIC) { return open(t), open(t) }})
}
