package rdma_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// simNIC is a software RNIC on a simulated network.
type simNIC struct {
	*cm.Manager
	dev *roce.Device
}

// newSimNIC makes one that uses all vendor options with others of its kind.
func newSimNIC(t *testing.T, n *simnet.Network, addr netip.AddrPort) *simNIC {
	t.Helper()
	return openSimNIC(t, n, addr, (*roce.Device).VendorOptions)
}

// openSimNIC makes one that uses these vendor options with others of its kind; if options is nil it doesn't recognize
// them.
func openSimNIC(t *testing.T, n *simnet.Network, addr netip.AddrPort, options func(*roce.Device) uint32) *simNIC {
	t.Helper()
	return simNICOf(t, n, addr, verbs.MTU4096, options)
}

// nobodys is a device without a vendor ID: others don't recognize it as one of their kind.
type nobodys struct{ *roce.Device }

func (d nobodys) Attr() verbs.DeviceAttr {
	a := d.Device.Attr()
	a.VendorID = 0
	return a
}

// simNICOf makes an RNIC whose interface has room for packets of a path MTU, long SENDs included.
func simNICOf(t *testing.T, n *simnet.Network, addr netip.AddrPort, mtu verbs.MTU, options func(*roce.Device) uint32) *simNIC {
	t.Helper()
	return simNICBehind(t, n, addr, mtu, options, nil)
}

// simNICBehind makes one whose path MTU to its peers is that of path, if path isn't nil.
func simNICBehind(t *testing.T, n *simnet.Network, addr netip.AddrPort, mtu verbs.MTU, options func(*roce.Device) uint32, path func(netip.Addr) verbs.MTU) *simNIC {
	t.Helper()
	room := 9000
	if mtu < verbs.MTU4096 {
		const headers = 96
		room = mtu.Bytes() + wire.LongSend + headers
	}
	conn, err := n.Listen(addr, simnet.Config{MTU: room, RecvBuffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := roce.Open(conn, roce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var known cm.Device = dev
	if options == nil {
		known = nobodys{dev}
	}
	m, err := cm.New(known, cm.Config{VendorOptions: func(netip.Addr) uint32 { return options(dev) }, PathMTU: path})
	if err != nil {
		t.Fatal(err)
	}
	return &simNIC{m, dev}
}

func (s *simNIC) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.Close(), s.dev.Close()); err != nil {
		t.Error(err)
	}
}

// simNetwork is a network whose packets take no time if instant is set, so two sides that answered each other forever
// would stop the clock: that is detected as a storm of packets.
func simNetwork(instant bool) *simnet.Network {
	n := simnet.New(1)
	if !instant {
		n.SetDefault(simnet.Link{Latency: 10 * time.Microsecond})
	}
	var at time.Time
	packets := 0
	n.SetFilter(func(*simnet.Datagram) simnet.Action {
		if now := time.Now(); now != at {
			at, packets = now, 0
		}
		if packets++; packets > maxAtOnce {
			panic("a storm of packets")
		}
		return simnet.Action{}
	})
	return n
}

// maxAtOnce is far more packets than a test here can need at one time.
const maxAtOnce = 20000

// Addresses of the simulated network.
var (
	simHost   = netip.MustParseAddrPort("10.0.0.1:4791")
	simTarget = netip.MustParseAddrPort("10.0.0.2:4791")
	simNVMe   = netip.MustParseAddrPort("10.0.0.2:4420")
)
