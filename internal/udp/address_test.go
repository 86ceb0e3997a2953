package udp

import (
	"errors"
	"net/netip"
	"testing"
)

func TestSourceFor(t *testing.T) {
	for _, dst := range []string{"127.0.0.1", "127.9.8.7"} {
		src, err := SourceFor(netip.MustParseAddr(dst))
		if err != nil {
			t.Fatal(err)
		}
		if want := netip.MustParseAddr("127.0.0.1"); src != want && src.String() != dst {
			t.Errorf("source for %s is %v, want %v", dst, src, want)
		}
	}
}

func TestInterfaceMTU(t *testing.T) {
	listed, err := interfaceMTU(netip.MustParseAddr("127.0.0.1"))
	if err != nil || listed < 1280 {
		t.Errorf("MTU of 127.0.0.1: %d, %v", listed, err)
	}
	covered, err := interfaceMTU(netip.MustParseAddr("127.200.3.4"))
	if err != nil || covered != listed {
		t.Errorf("MTU of 127.200.3.4: %d, %v; want that of 127.0.0.1, %d", covered, err, listed)
	}
	if _, err := interfaceMTU(netip.MustParseAddr("192.0.2.1")); !errors.Is(err, ErrNotLocal) {
		t.Errorf("MTU of a documentation address: %v, want ErrNotLocal", err)
	}
}
