package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// defaultPort is the port of NVMe over Fabrics, for I/O and discovery (IANA: nvme).
const defaultPort = 4420

// Endpoint is where a target listens or is reached.
type Endpoint struct {
	Transport nvme.TransportType
	Addr      netip.AddrPort
}

func (e Endpoint) String() string { return fmt.Sprintf("%s://%s", e.Transport, e.Addr) }

// transports lists the transports that this system supports.
var transports = []nvme.TransportType{nvme.TransportRDMA, nvme.TransportTCP}

// Transports returns the names of the supported transports.
func Transports() (names []string) {
	for _, t := range transports {
		names = append(names, t.String())
	}
	return names
}

// ParseTransport parses the name of a supported transport.
func ParseTransport(s string) (nvme.TransportType, error) {
	if i := slices.Index(Transports(), s); i >= 0 {
		return transports[i], nil
	}
	if s == "" {
		return 0, fmt.Errorf("no transport given: want %s", Or(Transports()))
	}
	return 0, fmt.Errorf("transport %q is not supported: want %s", s, Or(Transports()))
}

// ParseEndpoint parses TRANSPORT://ADDRESS[:PORT], such as rdma://127.0.0.1:4420 or tcp://[::1].
func ParseEndpoint(s string) (Endpoint, error) {
	name, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Endpoint{}, fmt.Errorf("%q: want rdma://ADDRESS:PORT or tcp://ADDRESS:PORT", s)
	}
	t, err := ParseTransport(name)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: %w", s, err)
	}
	host, port := rest, ""
	if h, p, err := net.SplitHostPort(rest); err == nil {
		host, port = h, p
	} else if h, p, ok := bare(rest); ok {
		return Endpoint{}, fmt.Errorf("%q: an IPv6 address with a port has brackets: write %s://[%s]:%s, or %s://[%s] if %s is of the address",
			s, name, h, p, name, rest, p)
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	addr, err := ParseHost(host)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: %w", s, err)
	}
	number, err := ParsePort(port)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: %w", s, err)
	}
	return Endpoint{t, netip.AddrPortFrom(addr, number)}, nil
}

// bare reports whether s can be read as an IPv6 address without brackets, followed by a port. It may also be an address
// as a whole.
func bare(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = s[:i], s[i+1:]
	a, addrErr := netip.ParseAddr(host)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return host, port, addrErr == nil && a.Is6() && portErr == nil
}

// ParseHost parses an IP address, which is what RDMA-CM uses; callers that accept names look them up themselves.
func ParseHost(host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, errors.New("no address given: want one as 127.0.0.1")
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address: want one as 192.0.2.1 or 2001:db8::1", host)
	}
	a = a.Unmap()
	switch {
	case a.IsMulticast():
		return netip.Addr{}, fmt.Errorf("%q is a multicast address: want that of one host", host)
	case a == broadcast:
		return netip.Addr{}, fmt.Errorf("%q is a broadcast address: want that of one host", host)
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		return netip.Addr{}, fmt.Errorf("%q is an address of every interface: want the interface too, as %s%%eth0", host, a)
	}
	return named(a), nil
}

// named returns an address with its interface by name, if it has it by number: so do the connections that the system
// accepts, and an endpoint is the same however it is written.
func named(a netip.Addr) netip.Addr {
	n, err := strconv.Atoi(a.Zone())
	if err != nil {
		return a
	}
	if _, err := net.InterfaceByName(a.Zone()); err == nil {
		return a
	}
	if i, err := net.InterfaceByIndex(n); err == nil {
		return a.WithZone(i.Name)
	}
	return a
}

// CheckZone returns an error if this machine has no interface with the name or number in the address's zone.
func CheckZone(a netip.Addr) error {
	if a.Zone() == "" {
		return nil
	}
	_, err := net.InterfaceByName(a.Zone())
	if n, notNumber := strconv.Atoi(a.Zone()); err != nil && notNumber == nil {
		_, err = net.InterfaceByIndex(n)
	}
	var errno unix.Errno
	switch {
	case errors.As(err, &errno): // it may have
		return fmt.Errorf("%s: looking for interface %q: %w", a, a.Zone(), err)
	case err != nil:
		return fmt.Errorf("%s: this machine has no interface %q; `ip link` lists those that it has", a, a.Zone())
	}
	return nil
}

// broadcast is the limited broadcast address (RFC 919).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// ParsePort parses a port; an empty one means defaultPort.
func ParsePort(port string) (uint16, error) {
	if port == "" {
		return defaultPort, nil
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil || p == 0 {
		return 0, fmt.Errorf("%q is not a port: want a number from 1 to 65535", port)
	}
	return uint16(p), nil
}

// CheckAddrPort checks the ADDRESS:PORT in a flag, if there is one.
func CheckAddrPort(flag, s string) error {
	if _, err := netip.ParseAddrPort(s); s != "" && err != nil {
		return Usage("%s %q: want ADDRESS:PORT, as 127.0.0.1:9090", flag, s)
	}
	return nil
}

// Overlaps reports whether listening on one of e and o takes the port of the other, as one of them is every address of
// a family.
func (e Endpoint) Overlaps(o Endpoint) bool {
	a, b := e.Addr.Addr(), o.Addr.Addr()
	return e.Transport == o.Transport && e.Addr.Port() == o.Addr.Port() && a.Is4() == b.Is4() &&
		(a.IsUnspecified() || b.IsUnspecified())
}

// UnmarshalText parses an endpoint from a file.
func (e *Endpoint) UnmarshalText(b []byte) error {
	v, err := ParseEndpoint(string(b))
	*e = v
	return err
}

// MarshalText formats e so that UnmarshalText can parse it.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }
