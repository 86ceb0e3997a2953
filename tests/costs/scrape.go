package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// crowdHosts is how many controllers the target has while it is scraped, besides the one under load: each has series of
// its own.
const crowdHosts = 1000

// completedName counts I/O at the host, whose own figures are few: reading them costs the same in every measurement.
const completedName = "nvmeof_host_commands_completed_total"

// scrapes compares the throughput of a load whose target is scraped once in each measurement with that of the same
// load, on the same connection, without scrapes.
func scrapes(p *plan) error {
	t, err := p.startTarget("--volume", "mem:64MiB", "--max-connections", "4096", "--max-host-connections", "4096")
	if err != nil {
		return err
	}
	defer t.Stop()
	crowd, err := p.startBenchAt(crowdPort, t, "tcp", "--rw", "randread", "--rate_iops", "1",
		"--controllers", strconv.Itoa(crowdHosts), "-i", "1")
	if err != nil {
		return err
	}
	defer crowd.Stop()
	if err := crowd.busy(); err != nil {
		return err
	}
	out := newTable(fmt.Sprintf("4 KiB random reads at depth 32 from a target with %d controllers", crowdHosts+1),
		"path", "IOPS", fmt.Sprintf("with a scrape each %v", p.time), "less", "lost to a scrape", "with one a second")
	for _, transport := range []string{"rdma", "tcp"} {
		s, err := p.scraped(t, transport)
		if err != nil {
			return fmt.Errorf("%s: %w", transport, err)
		}
		lost := s.lost()
		out.AppendRow([]any{transport, fmt.Sprintf("%.0f", median(s.without)), fmt.Sprintf("%.0f", median(s.with)),
			lost.text("%.2f%%", 100), lost.text("%.1f ms", 1e3*p.time.Seconds()), lost.text("%.2f%%", 100*p.time.Seconds())})
	}
	out.Render()
	fmt.Println("Medians, and where they lie with a confidence of 95%. Less than nothing: what else varies is more.")
	return nil
}

// underScrapes holds the IOPS of each round, without a scrape and with one.
type underScrapes struct{ without, with []float64 }

// scraped measures a load without and with a scrape, in rounds, each in random order.
func (p *plan) scraped(t *program, transport string) (*underScrapes, error) {
	h, err := p.startBench(t, transport, loadArgs("randread 4k 32")...)
	if err != nil {
		return nil, err
	}
	defer h.Stop()
	if err := h.busy(); err != nil {
		return nil, err
	}
	time.Sleep(rampTime)
	s := &underScrapes{}
	for range p.rounds {
		for _, i := range rand.Perm(2) {
			scrape, to := func() error { return nil }, &s.without
			if i == 1 {
				scrape, to = t.scrape, &s.with
			}
			iops, err := p.throughput(h, scrape)
			if err != nil {
				return nil, err
			}
			*to = append(*to, iops)
		}
	}
	return s, nil
}

// throughput measures the throughput of h for a time, in the middle of which it calls during.
func (p *plan) throughput(h *program, during func() error) (float64, error) {
	before, err := h.figures()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	time.Sleep(p.time / 2)
	if err := during(); err != nil {
		return 0, err
	}
	time.Sleep(time.Until(began.Add(p.time)))
	after, err := h.figures()
	if err != nil {
		return 0, err
	}
	return (after[completedName] - before[completedName]) / time.Since(began).Seconds(), nil
}

// interval is a median and its 95% confidence interval.
type interval struct{ low, mid, high float64 }

// lost returns by how much the throughput was lower with a scrape, round by round. Other load of the machine makes some
// rounds meaningless, hence the median, whose confidence interval is that of order statistics.
func (s *underScrapes) lost() interval {
	all := make([]float64, len(s.with))
	for i := range all {
		all[i] = 1 - s.with[i]/s.without[i]
	}
	slices.Sort(all)
	n := len(all)
	away := int(math.Ceil(1.96 / 2 * math.Sqrt(float64(n))))
	return interval{all[max(n/2-away, 0)], all[n/2], all[min(n/2+away, n-1)]}
}

func (i interval) text(format string, by float64) string {
	return fmt.Sprintf(format+" ("+format+" to "+format+")", by*i.mid, by*i.low, by*i.high)
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
