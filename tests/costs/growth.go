package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
)

// growthDepth is the total number of outstanding I/Os, however many connections share it.
const growthDepth = 64

// connections are the numbers that are compared.
var connections = []int{1, 4, 16, 64}

// grown is a configuration in which numbers of connections are compared.
type grown struct {
	name, transport string
	both            []string // flags of both programs
}

var grows = []grown{{"rdma", "rdma", nil}, {"rdma, local memory", "rdma", []string{"--local-memory"}}, {"tcp", "tcp", nil}}

// growth compares numbers of connections and of queues, and what bare TCP sockets achieve with the same numbers.
func growth(p *plan) error {
	if err := p.buildCeiling(); err != nil {
		return err
	}
	out := newTable("4 KiB random reads, 64 outstanding in all", "path", "connections", "IOPS", "CPU µs, host + target", "IOPS to the first")
	for _, w := range grows {
		if err := p.growthOf(out, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	out.Render()
	return nil
}

// growthOf adds a configuration to the table.
func (p *plan) growthOf(out table.Writer, w grown) error {
	t, err := p.startTarget(slices.Concat([]string{"--volume", "mem:64MiB", "--max-connections", "1024", "--max-host-connections", "1024"}, w.both)...)
	if err != nil {
		return err
	}
	defer t.Stop()
	if err := p.fill(t); err != nil {
		return err
	}
	var hosts, queues, bare []*variant
	for _, n := range connections {
		hosts = append(hosts, w.load(t, fmt.Sprintf("%d of 1 queue", n), n, n, 1))
		if w.transport == "tcp" {
			bare = append(bare, p.bareTCP(n))
		}
	}
	for _, n := range []int{1, 2, 4, 8} {
		queues = append(queues, w.load(t, fmt.Sprintf("1 of %d queues", n), n, 1, n))
	}
	if err := p.inTurns(slices.Concat(hosts, bare)); err != nil {
		return err
	}
	if err := p.inTurns(queues); err != nil {
		return err
	}
	appendCompared(out, w.name, hosts)
	if len(bare) > 0 {
		appendCompared(out, "bare TCP sockets", bare)
	}
	appendCompared(out, w.name, queues)
	return nil
}

// bareTCP measures the same number of bare sockets.
func (p *plan) bareTCP(n int) *variant {
	return &variant{name: strconv.Itoa(n), run: func() (sample, error) {
		return p.runCeiling("-tcp", strconv.Itoa(n), "-depth", strconv.Itoa(growthDepth))
	}}
}

// load is a load of n jobs on the given numbers of controllers and queues.
func (w *grown) load(t *program, name string, n, controllers, queues int) *variant {
	return &variant{name: name, transport: w.transport, target: t, args: append([]string{
		"--rw", "randread", "--bs", "4k", "--iodepth", strconv.Itoa(growthDepth / n), "--numjobs", strconv.Itoa(n),
		"--controllers", strconv.Itoa(controllers), "-i", strconv.Itoa(queues)}, w.both...)}
}

// sizes compares sparse files.
func sizes(p *plan) error {
	out := newTable("4 KiB random reads of a sparse file at depth 32 over RDMA", "path", "size", "IOPS", "CPU µs, host + target", "IOPS to the first")
	var all []*variant
	defer func() {
		for _, v := range all {
			v.target.Stop()
		}
	}()
	for _, size := range []string{"1GiB", "32GiB", "1TiB"} {
		t, err := p.startTarget("--volume", filepath.Join(p.dir, size), "--size", size)
		if err != nil {
			return err
		}
		all = append(all, &variant{name: size, transport: "rdma", target: t, args: []string{
			"--rw", "randread", "--bs", "4k", "--iodepth", "32", "-i", "1"}})
	}
	if err := p.inTurns(all); err != nil {
		return err
	}
	appendCompared(out, "rdma", all)
	out.Render()
	return nil
}
