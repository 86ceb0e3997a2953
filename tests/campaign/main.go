// Command campaign takes every fuzz target of the tree towards a number of executions, for as long as it may run: for
// each target first a while of Go's fuzzer, guided by coverage, then inputs derived from what that found, without
// guidance (see internal/fuzzing). It begins where the last run stopped: docs/fuzzing.log records what was reached, and
// docs/fuzzing.md shows it.
//
// Each target gets a short turn; then the one that needs the least time to reach its goal gets a long one, and so on,
// so that cheap targets are done first. An input that breaks a target is kept in its package's testdata/fuzz; the
// target gets no more turns in this run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// firstTurn is how long a target's first turn lasts, at most.
const firstTurn = 5 * time.Second

type options struct {
	goal         int
	total        time.Duration
	turn, guided time.Duration
	only         *regexp.Regexp
	keep         bool
	log, page    string
}

func main() {
	var o options
	only := flag.String("only", "", "run targets whose `package and name` match this")
	flag.IntVar(&o.goal, "goal", 10_000_000, "`executions` of each target")
	flag.DurationVar(&o.total, "time", 0, "stop after this; 0: when all is done")
	flag.DurationVar(&o.turn, "turn", 4*time.Minute, "the longest turn of a target")
	flag.DurationVar(&o.guided, "guided", 15*time.Second, "how long Go's fuzzer searches for inputs before the first turn")
	flag.StringVar(&o.log, "log", "docs/fuzzing.log", "the `file` with the sums")
	flag.StringVar(&o.page, "page", "docs/fuzzing.md", "the `file` with the table")
	flag.BoolVar(&o.keep, "keep", false, "run nothing, and keep in the tree what Go's fuzzer found and tests would else not cover")
	flag.Parse()
	o.only = regexp.MustCompile(*only)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.total > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.total)
		defer cancel()
	}
	all, err := findTargets(ctx)
	if err != nil {
		return err
	}
	b, err := openBook(o.log, o.page)
	if err != nil {
		return err
	}
	builds, err := newBuilds(ctx)
	if err != nil {
		return err
	}
	defer builds.remove()
	if o.keep {
		return keepAll(ctx, all, o.only, builds)
	}
	err = errors.Join(turns(ctx, o, all, b, builds), b.writePage(all, o.goal))
	if ctx.Err() != nil && err == nil {
		fmt.Println("out of time")
	}
	return err
}

// turns gives turns until everything is done, or time is over: a short one to each target, which shows how fast it is,
// then long ones to the one that needs the least time to reach its goal.
func turns(ctx context.Context, o options, all []target, b *book, builds *builds) error {
	var findings []error
	var waiting []target
	for _, t := range all {
		if o.only.MatchString(t.String()) && b.of(t).executions < o.goal {
			waiting = append(waiting, t)
		}
	}
	needs := map[target]time.Duration{} // of the targets that had a turn
	for len(waiting) > 0 && ctx.Err() == nil {
		i, turn := next(waiting, needs), o.turn
		t := waiting[i]
		if _, ok := needs[t]; !ok {
			turn = min(firstTurn, o.turn)
		}
		rate, err := takeTurn(ctx, o, t, b, builds, o.goal-b.of(t).executions, turn)
		if errors.Is(err, errFinding) {
			findings = append(findings, err)
			fmt.Println(err)
		} else if err != nil && ctx.Err() == nil {
			return err
		}
		left := o.goal - b.of(t).executions
		needs[t] = needed(left, rate)
		if left <= 0 || errors.Is(err, errFinding) {
			waiting = slices.Delete(waiting, i, i+1)
		}
		if err := b.writePage(all, o.goal); err != nil {
			return err
		}
	}
	return errors.Join(findings...)
}

// next returns the index of the target whose turn it is: the first that had none, else the one that needs the least
// time.
func next(waiting []target, needs map[target]time.Duration) (best int) {
	for i, t := range waiting {
		if _, ok := needs[t]; !ok {
			return i
		}
		if needs[t] < needs[waiting[best]] {
			best = i
		}
	}
	return best
}

// needed returns how long the given number of executions takes; very long if that isn't known.
func needed(executions int, rate float64) time.Duration {
	seconds := float64(executions) / rate
	if limit := time.Duration(math.MaxInt64); !(seconds < limit.Seconds()) {
		return limit
	}
	return time.Duration(seconds * float64(time.Second))
}

// takeTurn gives a target a turn; before its first one Go's fuzzer has its own. It returns how many executions a second
// it made.
func takeTurn(ctx context.Context, o options, t target, b *book, builds *builds, left int, turn time.Duration) (rate float64, err error) {
	if b.of(t).guided == 0 && o.guided > 0 {
		n, err := builds.guided(ctx, t, min(left, o.goal/10), o.guided)
		if err := b.add(t, guided, n, err); err != nil {
			return 0, err
		}
		left -= n
		if err != nil || left <= 0 {
			return 0, err
		}
	}
	if _, err := builds.program(ctx, t.dir); err != nil { // which is not part of the rate
		return 0, err
	}
	began := time.Now()
	n, err := builds.unguided(ctx, t, left, turn)
	if err := b.add(t, unguided, n, err); err != nil {
		return 0, err
	}
	rate = float64(n) / time.Since(began).Seconds()
	fmt.Printf("  %-24s %-28s %10d more, %6.0f/s, %10d in all\n", t.dir, t.name, n, rate, b.of(t).executions)
	return rate, err
}
