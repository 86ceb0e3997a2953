//go:build !linux

package udp

import (
	"net/netip"

	"golang.org/x/net/bpf"
)

// Listen returns ErrUnsupported: what the package promises about the IPv4 Identification holds
// on Linux only.
func Listen(addr netip.AddrPort, _ Config) (Conn, error) {
	return nil, &OpError{Op: "listen", Addr: addr, Kind: ErrUnsupported, Remedy: "the software RNIC needs Linux"}
}

// ListenGroup returns ErrUnsupported.
func ListenGroup(addr netip.AddrPort, cfg Config, _ int, _ []bpf.RawInstruction) ([]Conn, error) {
	_, err := Listen(addr, cfg)
	return nil, err
}
