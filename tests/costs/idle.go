package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// idleHosts is how many controllers are connected, of two connections each: the admin queue and
// one I/O queue.
const idleHosts = 500

const rssName = "process_resident_memory_bytes"

// idle holds a thousand connections on which nothing happens except keep-alive.
func idle(p *plan) error {
	out := newTable(fmt.Sprintf("%d connections, half of them I/O queues of 128 entries, all but one idle", 2*idleHosts),
		"path", "connections", "KiB each, host", "KiB each, target", "CPU, host", "CPU, target")
	for _, transport := range []string{"rdma", "tcp"} {
		row, err := p.held(transport)
		if err != nil {
			return err
		}
		out.AppendRow(row)
	}
	out.Render()
	return nil
}

// held measures what the connections of one transport cost, compared with a run with one controller.
func (p *plan) held(transport string) (table.Row, error) {
	one, _, _, err := p.hold(transport, 1)
	if err != nil {
		return nil, err
	}
	many, used, connections, err := p.hold(transport, idleHosts)
	if err != nil {
		return nil, err
	}
	each := func(i int) string {
		return fmt.Sprintf("%.1f", (many[i][rssName]-one[i][rssName])/float64(2*(idleHosts-1))/1024)
	}
	share := func(i int) string { return fmt.Sprintf("%.2f%%", 100*used[i].Seconds()/idleWatch.Seconds()) }
	return table.Row{transport, fmt.Sprintf("%.0f", connections), each(0), each(1), share(0), share(1)}, nil
}

// idleWatch is how long idle connections are watched.
const idleWatch = 5 * time.Second

// hold connects controllers, one of which does one I/O a second, and returns the figures of both sides, what they used
// meanwhile, and how many connections the target has.
func (p *plan) hold(transport string, controllers int) (at [2]figures, used [2]time.Duration, connections float64, err error) {
	t, err := p.startTarget("--volume", "mem:64MiB", "--max-connections", "2048", "--max-host-connections", "2048", "--memory", "4GiB")
	if err != nil {
		return at, used, 0, err
	}
	defer t.Stop()
	h, err := p.startBench(t, transport, "--rw", "randread", "--rate_iops", "1",
		"--controllers", strconv.Itoa(controllers), "-i", "1")
	if err != nil {
		return at, used, 0, err
	}
	defer h.Stop()
	if err := h.busy(); err != nil {
		return at, used, 0, err
	}
	if at, err = both(h, t); err != nil {
		return at, used, 0, err
	}
	time.Sleep(time.Second) // work left over from connecting, and from reporting so many figures
	began := [2]time.Duration{h.CPU(), t.CPU()}
	time.Sleep(idleWatch)
	for i, r := range []*program{h, t} {
		used[i] = r.CPU() - began[i]
	}
	return at, used, at[1]["nvmeof_target_queues"], nil
}
