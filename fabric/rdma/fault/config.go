package fault

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Config says which faults to inject. The zero value has none. Probabilities are from 0 to 1, for each packet in each
// direction.
type Config struct {
	Loss      float64
	Duplicate float64
	Corrupt   float64 // one bit is flipped
	Reorder   float64 // delayed by ReorderDelay, so that others overtake it

	// Delay is added to each packet, plus or minus a random part of Jitter.
	Delay, Jitter time.Duration
	// ReorderDelay is the extra delay for Reorder; 0 means 1 ms.
	ReorderDelay time.Duration

	// Cuts are the periods in which nothing passes.
	Cuts []Cut

	// Seed repeats a run as far as the order of packets repeats. 0 draws a seed, which Conn.Config returns.
	Seed uint64
}

// Cut is a period in which nothing passes.
type Cut struct {
	Way   Way
	After time.Duration // since the RNIC was opened
	For   time.Duration // 0: for good
}

// Way is a direction.
type Way uint8

// Directions, as the RNIC sees them.
const (
	Both Way = iota
	In
	Out
)

// maxDelay bounds delays: every transport considers what takes longer as lost.
const maxDelay = 10 * time.Second

// Validate says what is wrong with c, naming the field.
func (c *Config) Validate() error {
	for _, p := range []struct {
		name  string
		value float64
	}{{"Loss", c.Loss}, {"Duplicate", c.Duplicate}, {"Corrupt", c.Corrupt}, {"Reorder", c.Reorder}} {
		if math.IsNaN(p.value) || p.value < 0 || p.value > 1 {
			return fmt.Errorf("fault: %s %v: want 0 to 1", p.name, p.value)
		}
	}
	switch {
	case c.Delay < 0 || c.Delay > maxDelay:
		return fmt.Errorf("fault: Delay %v: want 0 to %v", c.Delay, maxDelay)
	case c.Jitter < 0 || c.Jitter > c.Delay:
		return fmt.Errorf("fault: Jitter %v: want 0 to Delay (%v)", c.Jitter, c.Delay)
	case c.ReorderDelay < 0 || c.ReorderDelay > maxDelay:
		return fmt.Errorf("fault: ReorderDelay %v: want 0 to %v", c.ReorderDelay, maxDelay)
	}
	for _, cut := range c.Cuts {
		switch {
		case cut.Way > Out:
			return fmt.Errorf("fault: Cuts: Way %d: want Both, In or Out", cut.Way)
		case cut.After < 0 || cut.For < 0:
			return fmt.Errorf("fault: Cuts: After %v, For %v: want times from 0 on", cut.After, cut.For)
		}
	}
	return nil
}

// String formats c so that Parse can read it.
func (c *Config) String() string {
	var parts []string
	add := func(key, value string) { parts = append(parts, key+"="+value) }
	for _, p := range []struct {
		key   string
		value float64
		more  string
	}{{"loss", c.Loss, ""}, {"dup", c.Duplicate, ""}, {"reorder", c.Reorder, plus(c.ReorderDelay)}, {"corrupt", c.Corrupt, ""}} {
		if p.value > 0 || p.more != "" {
			add(p.key, percent(p.value)+p.more)
		}
	}
	if c.Delay > 0 {
		s := c.Delay.String()
		if c.Jitter > 0 {
			s += "±" + c.Jitter.String()
		}
		add("delay", s)
	}
	for _, cut := range c.Cuts {
		add("cut", cut.String())
	}
	if c.Seed != 0 {
		add("seed", strconv.FormatUint(c.Seed, 10))
	}
	if len(parts) == 0 {
		return "loss=0%"
	}
	return strings.Join(parts, ",")
}

// fewDigits is for people; allDigits distinguish any float64 from all others.
const (
	fewDigits = 6
	allDigits = 17
)

// percent formats a probability with as few digits as needed to read it back exactly.
func percent(p float64) string {
	text := ""
	for digits := fewDigits; digits <= allDigits; digits++ {
		text = strconv.FormatFloat(100*p, 'g', digits, 64) + "%"
		var read float64
		if share(&read, text) == nil && read == p {
			break
		}
	}
	return text
}

func plus(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return "+" + d.String()
}

// String formats c so that Parse can read it.
func (c Cut) String() string {
	return wayPrefix[c.Way] + c.After.String() + plus(c.For)
}

var wayPrefix = [...]string{Both: "", In: "in:", Out: "out:"}
