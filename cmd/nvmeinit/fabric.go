package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// fabric is an open transport with its resources.
type fabric struct {
	host.Transport
	remote  netip.AddrPort
	local   netip.Addr // zero unless the user chose one
	rnics   *softrnic.Routes
	rdma    *rdma.Transport
	tcp     *tcp.Transport
	capture *softrnic.Capture
	lent    bool     // the capture is another fabric's
	sharing *sharing // if --local-memory
}

// openFabric opens the transport that the flags name. All connections on it must be closed before the fabric is.
func openFabric(f *connFlags) (*fabric, error) {
	t, err := cli.ParseTransport(f.transport)
	if err != nil {
		return nil, cli.Usage("-t: %w", err)
	}
	fab := &fabric{}
	if fab.remote, fab.local, err = f.addresses(); err != nil {
		return nil, err
	}
	if f.capture != nil {
		fab.capture, fab.lent = f.capture, true
	} else if f.pcap != "" {
		if fab.capture, err = softrnic.CreateCapture(f.pcap, "nvmeinit"); err != nil {
			return nil, cli.CreateError("--pcap", f.pcap, err)
		}
	}
	if t == nvme.TransportTCP {
		err = fab.openTCP(f)
	} else {
		err = fab.openRDMA(f)
	}
	if err != nil {
		return nil, errors.Join(err, fab.Close())
	}
	return fab, nil
}

// addresses returns the addresses of -a, -s and -w; without -w, local is the zero address.
func (f *connFlags) addresses() (remote netip.AddrPort, local netip.Addr, err error) {
	addr, err := cli.ParseHost(f.traddr)
	if err != nil {
		if flags := flagsFor(f.traddr, f.transport); flags != "" {
			return remote, local, cli.Usage("-a: %w; is %s meant?", err, flags)
		}
		return remote, local, cli.Usage("-a: %w", err)
	}
	if addr.IsUnspecified() {
		return remote, local, cli.Usage("-a %s: no host has that address: want the one that the target listens on", addr)
	}
	if err := cli.CheckZone(addr); err != nil {
		return remote, local, fmt.Errorf("-a %w", err)
	}
	port, err := cli.ParsePort(f.trsvcid)
	if err != nil {
		return remote, local, cli.Usage("-s: %w", err)
	}
	remote = netip.AddrPortFrom(addr, port)
	if f.hostTraddr == "" {
		return remote, local, nil
	}
	if local, err = cli.ParseHost(f.hostTraddr); err != nil {
		return remote, local, cli.Usage("-w: %w", err)
	}
	if local.Is4() != addr.Is4() {
		return remote, local, cli.Usage("-w %s and -a %s: want both IPv4 or both IPv6", local, addr)
	}
	return remote, local, nil
}

// lookFor returns BusyPoll for either transport.
func (f *connFlags) lookFor() time.Duration {
	if f.packets.BusyPoll == 0 {
		return busypoll.Off
	}
	return f.packets.BusyPoll
}

func (fab *fabric) openTCP(f *connFlags) error {
	cfg := tcp.HostConfig{HeaderDigest: f.hdrDigest, DataDigest: f.dataDigest, BusyPoll: f.lookFor()}
	if fab.capture != nil {
		cfg.Tap = func(local, remote netip.AddrPort) tcp.Tap { return fab.capture.Stream(local, remote, true) }
	}
	var err error
	fab.tcp, err = tcp.NewTransport(cfg)
	fab.Transport = fab.tcp
	return err
}

func (fab *fabric) openRDMA(f *connFlags) error {
	p := &f.packets
	rnics, err := softrnic.NewRoutes(softrnic.Config{
		Plain: p.PlainUDP, NoLocalICRC: p.NoLocalICRC, LocalMemory: p.LocalMemory, Engines: p.Engines, BusyPoll: f.lookFor(), DSCP: uint8(p.DSCP), Priority: p.Priority,
		Capture: fab.capture, Fault: p.Fault.Config,
	})
	if err != nil {
		return err
	}
	fab.rnics = rnics
	if p.LocalMemory {
		fab.sharing = &sharing{began: time.Now(), stderr: f.stderr()}
		rnics.Watch(fab.sharing.add)
	}
	said := ""
	rnics.Watch(func(nic *softrnic.RNIC) {
		if faults := nic.Faults(); faults != nil {
			cfg := faults.Config()
			if text := cfg.String(); text != said { // those of one address have the same
				fmt.Fprintf(f.stderr(), "with faults: %s\n", text)
				said = text
			}
		}
	})
	if err := fab.ready(); err != nil {
		return err
	}
	fab.rdma, err = rdma.NewTransport(rnics, rdma.HostConfig{})
	fab.Transport = fab.rdma
	return err
}

// ready opens the RNIC that leads to the remote address, unless it is open, to report at once if that isn't
// possible.
func (fab *fabric) ready() error {
	if fab.rnics == nil {
		return nil
	}
	_, err := fab.rnics.Reach(fab.local, fab.remote.Addr())
	if err != nil && fab.local.IsValid() {
		return fmt.Errorf("-w %s: %w", fab.local, err)
	}
	return err
}

// Close frees the transport. It may be called on a partly opened fabric.
func (fab *fabric) Close() error {
	var errs []error
	if fab.rdma != nil {
		errs = append(errs, fab.rdma.Close())
	}
	if fab.tcp != nil {
		errs = append(errs, fab.tcp.Close())
	}
	if fab.sharing != nil {
		fab.sharing.tell()
	}
	if fab.rnics != nil {
		errs = append(errs, fab.rnics.Close())
	}
	if fab.capture != nil && !fab.lent {
		errs = append(errs, fab.capture.Close())
	}
	return errors.Join(errs...)
}
