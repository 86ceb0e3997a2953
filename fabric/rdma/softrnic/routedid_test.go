package softrnic

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// leavingRNIC is an RNIC that closes as soon as there is anybody to tell, and the only identifier that it has made.
type leavingRNIC struct{ unresolved }

func (l *leavingRNIC) from(netip.Addr, netip.Addr) (verbs.ConnectionManager, error) { return l, nil }
func (l *leavingRNIC) listen(*routedID, netip.AddrPort, int) error                  { return errNoListener }

func (l *leavingRNIC) CreateID(h verbs.CMHandler) (verbs.CMID, error) {
	l.SetHandler(h)
	return l, nil
}

func (l *leavingRNIC) SetHandler(h verbs.CMHandler) {
	if h != nil {
		h(verbs.CMEvent{Type: verbs.CMDeviceRemoval, ID: l})
	}
}

func (*leavingRNIC) ResolveAddr(netip.Addr, netip.AddrPort, time.Duration) error {
	return verbs.ErrClosed
}

// TestRemovalWhileResolving: an identifier whose RNIC is closed just when its address leads there is told of that as what
// its consumer knows, and can be destroyed then as that RNIC's.
func TestRemovalWhileResolving(t *testing.T) {
	nic := new(leavingRNIC)
	told := 0
	var id *routedID
	id = newRoutedID(nic, func(ev verbs.CMEvent) {
		told++
		if ev.Type != verbs.CMDeviceRemoval || ev.ID != id {
			t.Errorf("event %v of %T, want the removal of the identifier that was made", ev.Type, ev.ID)
		}
		if id.CMID != nic {
			t.Error("the handler is called before the identifier is one of the RNIC")
		}
	})
	_ = id.ResolveAddr(netip.Addr{}, netip.MustParseAddrPort("192.0.2.1:4420"), time.Second)
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
