package softrnic_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs/verbstest"
)

// TestProvider: software RNICs keep the promises of package verbs, alone at their addresses and in groups.
func TestProvider(t *testing.T) {
	open := func(t *testing.T, engines int) verbstest.RNIC {
		nics, err := softrnic.OpenGroup(someAddr(), softrnic.Config{Engines: engines})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nics.Close(); err != nil && !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		})
		return verbstest.RNIC{ConnectionManager: nics, Addr: nics.Addr(), Close: nics.Close}
	}
	for _, engines := range [][2]int{{1, 1}, {1, 3}, {softrnic.MaxEngines, 2}} {
		t.Run(fmt.Sprintf("engines=%d+%d", engines[0], engines[1]), func(t *testing.T) {
			verbstest.Run(t, verbstest.Config{New: func(t *testing.T) (host, target verbstest.RNIC) {
				return open(t, engines[0]), open(t, engines[1])
			}})
		})
	}
}

// someAddr returns an address of this host that has no RNIC, most likely.
func someAddr() netip.Addr {
	return netip.AddrFrom4([4]byte{127, 2 + byte(rand.N(200)), byte(rand.N(256)), 1 + byte(rand.N(254))})
}
