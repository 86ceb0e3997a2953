package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// lookUp replaces the host name of -a by its address. If there are several, it takes the first one in the address
// family of -w, or else the first IPv4 address, which targets listen on by default.
func (f *connFlags) lookUp(ctx context.Context) error {
	if !isName(f.traddr) {
		return nil
	}
	network := "ip"
	if local, err := netip.ParseAddr(f.hostTraddr); err == nil {
		network = "ip6"
		if local.Unmap().Is4() {
			network = "ip4"
		}
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, network, f.traddr)
	var unknown *net.DNSError
	if errors.As(err, &unknown) && unknown.IsNotFound {
		return cli.Usage("-a %s: no such host: want its IP address, or a name that this machine can look up", f.traddr)
	}
	if err != nil {
		return cli.Say(err, "-a %s: its address can't be looked up: %v", f.traddr, err)
	}
	f.traddr = preferred(all).String()
	return nil
}

// preferred returns the first IPv4 address, or else the first address.
func preferred(all []netip.Addr) netip.Addr {
	if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Unmap().Is4() }); i >= 0 {
		return all[i].Unmap()
	}
	return all[0]
}

// isName reports whether host is a host name, and not an IP address or an attempt at one.
func isName(host string) bool {
	return strings.ContainsFunc(host, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) && !strings.Contains(host, ":")
}
