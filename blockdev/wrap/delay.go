package wrap

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Delay is a volume whose answers come late.
type Delay struct {
	layer
	least, most time.Duration
}

// NewDelay delays each answer of v by a random time from least to most.
func NewDelay(v blockdev.Volume, least, most time.Duration) *Delay {
	mode := fmt.Sprintf("delayed by %v", least)
	if most > least {
		mode = fmt.Sprintf("%s to %v", mode, most)
	}
	d := &Delay{least: least, most: max(least, most)}
	d.layer = newLayer(v, mode, d.made, d.back)
	return d
}

// Submit passes r on; its answer waits.
func (d *Delay) Submit(r *blockdev.Request) {
	if c := d.enter(r); c != nil {
		d.below.Submit(&c.down)
	}
}

// made gives a call its timer, which is reused.
func (d *Delay) made(c *call) {
	t := time.AfterFunc(time.Hour, func() { d.leave(c, c.down.Err) })
	t.Stop()
	c.data = t
}

func (d *Delay) back(c *call) {
	t, _ := c.data.(*time.Timer)
	t.Reset(d.least + rand.N(d.most-d.least+1))
}

// parseDelay parses "2ms" or "1ms-5ms".
func parseDelay(s string) (least, most time.Duration, err error) {
	first, last, isRange := strings.Cut(s, "-")
	if least, err = time.ParseDuration(first); err == nil {
		if most = least; isRange {
			most, err = time.ParseDuration(last)
		}
	}
	if err != nil || most < least { // neither can be negative: the sign would separate them
		return 0, 0, fmt.Errorf("delay %q: write a time as 2ms, or two as 1ms-5ms", s)
	}
	return least, most, nil
}
