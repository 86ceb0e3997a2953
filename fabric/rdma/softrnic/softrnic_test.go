package softrnic_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = netip.MustParseAddr("127.0.0.1")

// TestOpenFor: RNICs for a destination on loopback get addresses of their own, and each address can have only one.
func TestOpenFor(t *testing.T) {
	var nics []*softrnic.RNIC
	for range 2 {
		nic, err := softrnic.OpenFor(loopback, softrnic.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer nic.Close()
		nics = append(nics, nic)
	}
	one, two := nics[0].Device().Attr().Addr, nics[1].Device().Attr().Addr
	if one == two || !one.IsLoopback() || !two.IsLoopback() {
		t.Errorf("addresses %v and %v", one, two)
	}
	_, err := softrnic.Open(one, softrnic.Config{})
	if !errors.Is(err, softrnic.ErrInUse) || !strings.Contains(err.Error(), one.String()) {
		t.Errorf("opened twice: %v", err)
	}
	if err := nics[0].Close(); err != nil {
		t.Fatal(err)
	}
	again, err := softrnic.Open(one, softrnic.Config{})
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	defer again.Close()
}

// TestOpenForNoHost: what isn't the address of a host is refused as such, before a route to it is looked up.
func TestOpenForNoHost(t *testing.T) {
	routes := openRoutes(t)
	for _, dst := range []netip.Addr{
		{}, netip.IPv4Unspecified(), netip.IPv6Unspecified(), netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("ff02::1%lo"),
		netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("::ffff:255.255.255.255"),
	} {
		nic, err := softrnic.OpenFor(dst, softrnic.Config{})
		if !errors.Is(err, softrnic.ErrConfig) || !strings.Contains(err.Error(), "one host") {
			t.Errorf("%v: %v", dst, err)
		}
		if err == nil {
			nic.Close()
		}
		if _, err := routes.Reach(netip.MustParseAddr("127.44.9.1"), dst); !errors.Is(err, softrnic.ErrConfig) || !strings.Contains(err.Error(), "one host") {
			t.Errorf("%v from a chosen address: %v", dst, err)
		}
	}
}

// TestCloseAgain: a second Close returns ErrClosed, as with devices and volumes.
func TestCloseAgain(t *testing.T) {
	nic, err := softrnic.OpenFor(loopback, softrnic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Close(); err != nil {
		t.Error(err)
	}
	if err := nic.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
}

func TestNotLocal(t *testing.T) {
	if _, err := softrnic.Open(netip.MustParseAddr("192.0.2.1"), softrnic.Config{}); !errors.Is(err, softrnic.ErrNotLocal) {
		t.Error(err)
	}
}

// TestConfig: fields that can't be used are refused by name, before anything is opened.
func TestConfig(t *testing.T) {
	for want, cfg := range map[string]softrnic.Config{
		"DSCP 64":        {DSCP: 64},
		"priority 7":     {Priority: 7},
		"busy polling":   {BusyPoll: time.Hour},
		"MaxHalfOpen -1": {MaxHalfOpen: -1},
		"Engines -1":     {Engines: -1},
		"Engines 9":      {Engines: softrnic.MaxEngines + 1},
		"LocalMemory":    {Engines: 2, LocalMemory: true},
		"Loss":           {Fault: &fault.Config{Loss: 2}},
	} {
		_, err := softrnic.OpenGroup(loopback, cfg)
		if !errors.Is(err, softrnic.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := new(softrnic.Config).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
