package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// loads are the loads with which an I/O is measured.
var loads = []string{
	"randread 4k 1", "randread 4k 32", "randread 4k 128", "randwrite 4k 32", "read 128k 32", "write 128k 32",
}

// loadArgs are the flags of a load: pattern, size and depth.
func loadArgs(load string) []string {
	f := strings.Fields(load)
	return []string{"--rw", f[0], "--bs", f[1], "--iodepth", f[2], "-i", "1", "-Q", "256"}
}

// ways are the transports: RDMA without ICRC and through shared memory, and NVMe/TCP with digests, which is checksummed
// as RDMA is.
var ways = []struct {
	name, transport string
	both            []string // flags of both programs
	host            []string
}{
	{"rdma", "rdma", nil, nil},
	{"rdma, no ICRC", "rdma", []string{"--no-local-icrc"}, nil},
	{"rdma, local memory", "rdma", []string{"--local-memory"}, nil},
	{"rdma, local memory, no ICRC", "rdma", []string{"--local-memory", "--no-local-icrc"}, nil},
	{"tcp", "tcp", nil, nil},
	{"tcp, digests", "tcp", nil, []string{"--hdr-digest", "--data-digest"}},
}

// costPerIO shows what one I/O costs each side.
func costPerIO(p *plan) error {
	targets, err := p.targetsOfWays()
	if err != nil {
		return err
	}
	defer stopAll(targets)
	t := newTable("What an I/O costs, host + target", "load", "path", "IOPS", "CPU µs",
		"calls", "calls for nothing", "trains", "packets", "copied by the kernel", "copied again")
	for _, load := range loads {
		all := paths(load, targets)
		if err := p.inTurns(all); err != nil {
			return fmt.Errorf("%s: %w", load, err)
		}
		for _, v := range all {
			row := table.Row{load, v.name, fmt.Sprintf("%.0f", v.iops()), fmt.Sprintf("%.2f + %.2f", v.hostCPU(), v.targetCPU())}
			for _, c := range counted {
				row = append(row, v.sides(c))
			}
			t.AppendRow(row)
		}
		t.AppendSeparator()
	}
	t.Render()
	fmt.Println("calls: system calls that sent or received; copied by the kernel: to and from sockets;\n" +
		"copied again: from the receive buffer to its place, and in front of sending, also to shared memory.")
	return nil
}

// targetsOfWays starts a target for each way.
func (p *plan) targetsOfWays() (targets []*program, err error) {
	for _, w := range ways {
		t, err := p.startTarget(append([]string{"--volume", p.volume}, w.both...)...)
		if err != nil {
			stopAll(targets)
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		targets = append(targets, t)
		if err := p.fill(t); err != nil {
			stopAll(targets)
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return targets, nil
}

// fill writes the whole volume once: before that all of its pages are the same one, which is always in the cache.
func (p *plan) fill(t *program) error {
	line := slices.Concat(t.hosts, []string{filepath.Join(p.bin, "nvmeinit"), "bench", "-t", "tcp", "-a", t.addr, "-n", nqn,
		"--rw", "write", "--bs", "128k", "--iodepth", "8", "-o", "json"})
	_, err := process.Output(exec.Command(line[0], line[1:]...))
	return err
}

func stopAll(targets []*program) {
	for _, t := range targets {
		t.Stop()
	}
}

// paths returns a load on each way, to its target.
func paths(load string, targets []*program) (all []*variant) {
	for i, w := range ways {
		args := slices.Concat(loadArgs(load), w.both, w.host)
		all = append(all, &variant{name: w.name, transport: w.transport, target: targets[i], args: args})
	}
	return all
}

// column is a figure of an I/O: names of counters that are added, and of those that are subtracted.
type column struct {
	add, subtract []string
	decimals      int
}

var counted = []column{
	{add: []string{"nvmeof_udp_send_calls_total", "nvmeof_udp_receive_calls_total", "nvmeof_tcp_calls_total"}, decimals: 3},
	{add: []string{"nvmeof_udp_empty_receive_calls_total", "nvmeof_tcp_blocked_total"}, decimals: 3},
	{add: []string{"nvmeof_rnic_sent_trains_total"}, decimals: 3},
	{add: []string{"nvmeof_rnic_sent_pkts_total"}, decimals: 2},
	{add: []string{"nvmeof_udp_sent_bytes_total", "nvmeof_udp_received_bytes_total", "nvmeof_tcp_bytes_total"},
		subtract: []string{"nvmeof_udp_sent_shared_bytes_total", "nvmeof_udp_received_shared_bytes_total"}},
	{add: []string{"nvmeof_rnic_placed_bytes_total", "nvmeof_rnic_staged_bytes_total", "nvmeof_udp_sent_shared_bytes_total",
		"nvmeof_tcp_data_bytes_total received"},
		subtract: []string{"nvmeof_tcp_direct_bytes_total received"}},
}

func (c column) of(f figures) (sum float64) {
	for _, n := range c.add {
		sum += f[n]
	}
	for _, n := range c.subtract {
		sum -= f[n]
	}
	return max(sum, 0)
}

// sides is a column of the host and of the target.
func (v *variant) sides(c column) string {
	host := v.median(func(s sample) float64 { return c.of(s.host) })
	target := v.median(func(s sample) float64 { return c.of(s.target) })
	return fmt.Sprintf("%.*f + %.*f", c.decimals, host, c.decimals, target)
}
