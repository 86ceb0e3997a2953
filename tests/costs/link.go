package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// Network namespaces and addresses of the link's ends.
const (
	targetSpace, hostSpace = "nvmeof-costs-target", "nvmeof-costs-host"
	targetAddr, hostAddr   = "192.0.2.1", "192.0.2.2"
)

// linkMTUs are Ethernet's usual one, and that of jumbo frames.
var linkMTUs = []int{1500, 9000}

var linkLoads = []string{
	"randread 4k 1", "randread 4k 32", "randread 4k 128", "randwrite 4k 1", "randwrite 4k 8", "randwrite 4k 32",
	"randwrite 4k 128", "randwrite 8k 32", "randwrite 16k 32", "read 128k 32", "write 128k 32",
}

// link compares RDMA with NVMe/TCP over a link, a veth between two network namespaces, with packets as short as on a
// network, which loopback's are not. It needs root.
func link(p *plan) error {
	if os.Geteuid() != 0 {
		fmt.Println("link: left out, as network namespaces take root")
		return nil
	}
	out := newTable("Over a link: IOPS", "load", "MTU", "RDMA", "TCP", "RDMA / TCP")
	for _, mtu := range linkMTUs {
		if err := p.overLink(out, mtu); err != nil {
			return fmt.Errorf("MTU %d: %w", mtu, err)
		}
		out.AppendSeparator()
	}
	out.Render()
	return nil
}

// overLink adds a link's loads to the table.
func (p *plan) overLink(out table.Writer, mtu int) error {
	defer func() { _ = unlink() }()
	if err := makeLink(mtu); err != nil {
		return err
	}
	t, err := p.startBehindLink("--volume", "mem:64MiB")
	if err != nil {
		return err
	}
	defer t.Stop()
	if err := p.fill(t); err != nil {
		return err
	}
	for _, load := range linkLoads {
		var all []*variant
		for _, transport := range []string{"rdma", "tcp"} {
			v := &variant{name: transport, transport: transport, target: t, args: loadArgs(load)}
			v.run = func() (sample, error) { return p.rate(v) }
			all = append(all, v)
		}
		if err := p.inTurns(all); err != nil {
			return fmt.Errorf("%s: %w", load, err)
		}
		out.AppendRow(table.Row{load, mtu, fmt.Sprintf("%.0f", all[0].iops()), fmt.Sprintf("%.0f", all[1].iops()), against(all[0], all[1])})
	}
	return nil
}

// makeLink makes both namespaces, and joins them.
func makeLink(mtu int) error {
	_ = unlink() // left by a run that was killed
	for _, line := range []string{
		"netns add " + targetSpace,
		"netns add " + hostSpace,
		"link add costs0 netns " + targetSpace + " type veth peer name costs1 netns " + hostSpace,
		"-n " + targetSpace + " addr add " + targetAddr + "/24 dev costs0",
		"-n " + hostSpace + " addr add " + hostAddr + "/24 dev costs1",
		fmt.Sprintf("-n %s link set costs0 mtu %d up", targetSpace, mtu),
		fmt.Sprintf("-n %s link set costs1 mtu %d up", hostSpace, mtu),
	} {
		if err := ip(line); err != nil {
			return err
		}
	}
	return nil
}

// unlink removes both namespaces, and the link with them.
func unlink() error {
	err := ip("netns del " + targetSpace)
	if e := ip("netns del " + hostSpace); err == nil {
		err = e
	}
	return err
}

func ip(line string) error {
	_, err := process.Output(exec.Command("ip", strings.Fields(line)...))
	return err
}

// startBehindLink starts nvmetgt at one end of the link, for hosts at the other. Its figures can't be reached from
// here.
func (p *plan) startBehindLink(args ...string) (*program, error) {
	line := slices.Concat(inSpace(targetSpace), []string{filepath.Join(p.bin, "nvmetgt")}, serveArgs(targetAddr, args))
	run, err := process.Serve(exec.Command(line[0], line[1:]...), func(string) {})
	return &program{Process: run, addr: targetAddr, hosts: inSpace(hostSpace)}, err
}

// inSpace begins the command of a program in a network namespace.
func inSpace(space string) []string { return []string{"ip", "netns", "exec", space} }
