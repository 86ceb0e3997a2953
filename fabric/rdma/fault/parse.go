package fault

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Syntax describes what Parse accepts, for people.
const Syntax = `loss=1%           lose this share of packets
dup=1%            deliver twice
corrupt=0.1%      change a bit
reorder=1%+2ms    hold back by that time (1ms), so that others overtake
delay=200us±50us  delay each packet, each way (+- for ± as well)
cut=5s+2s         nothing passes for 2s from 5s on; in:5s or out:5s one way only,
                  without +2s for good; repeat for more
seed=7            repeat a run`

// Parse parses "loss=1%,delay=200us±50us": keys and values as in Syntax, each key at most once, except cut. An error
// names the key and what it takes.
func Parse(s string) (Config, error) {
	var c Config
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		read := keys[key]
		switch {
		case read == nil || !ok:
			return Config{}, fmt.Errorf("fault %q: want one of loss, dup, corrupt, reorder, delay, cut or seed, as loss=1%%", part)
		case seen[key] && key != "cut":
			return Config{}, fmt.Errorf("fault: %s is given twice", key)
		}
		seen[key] = true
		if err := read(&c, value); err != nil {
			return Config{}, fmt.Errorf("fault %s=%s: %w", key, value, err)
		}
	}
	err := c.Validate()
	return c, err
}

// keys holds the parser of each key's value.
var keys = map[string]func(c *Config, v string) error{
	"loss":    func(c *Config, v string) error { return share(&c.Loss, v) },
	"dup":     func(c *Config, v string) error { return share(&c.Duplicate, v) },
	"corrupt": func(c *Config, v string) error { return share(&c.Corrupt, v) },
	"reorder": func(c *Config, v string) error {
		v, by, _ := strings.Cut(v, "+")
		if err := optionalTime(&c.ReorderDelay, by); err != nil {
			return err
		}
		return share(&c.Reorder, v)
	},
	"delay": func(c *Config, v string) error {
		v, jitter, _ := strings.Cut(strings.Replace(v, "+-", "±", 1), "±")
		if err := optionalTime(&c.Jitter, jitter); err != nil {
			return err
		}
		return duration(&c.Delay, v)
	},
	"cut": func(c *Config, v string) error {
		var cut Cut
		for way, prefix := range wayPrefix {
			if rest, ok := strings.CutPrefix(v, prefix); ok && prefix != "" {
				cut.Way, v = Way(way), rest
			}
		}
		after, length, _ := strings.Cut(v, "+")
		if err := optionalTime(&cut.For, length); err != nil {
			return err
		}
		c.Cuts = append(c.Cuts, cut)
		return duration(&c.Cuts[len(c.Cuts)-1].After, after)
	},
	"seed": func(c *Config, v string) (err error) {
		if c.Seed, err = strconv.ParseUint(v, 0, 64); err != nil || c.Seed == 0 {
			return errors.New("want a number from 1 on")
		}
		return nil
	},
}

// share parses "1%". A number without the sign could mean percent or a fraction, so it is refused.
func share(to *float64, v string) error {
	number, percent := strings.CutSuffix(v, "%")
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || !(f >= 0 && f <= 100) {
		return errors.New("want a share from 0% to 100%, as 1%")
	}
	*to = f / 100
	return nil
}

func duration(to *time.Duration, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return errors.New("want a time, as 200us, 5ms or 10s")
	}
	*to = d
	return nil
}

func optionalTime(to *time.Duration, v string) error {
	if v == "" {
		return nil
	}
	return duration(to, v)
}
