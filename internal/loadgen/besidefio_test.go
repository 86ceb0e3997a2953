package loadgen

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// drawn summarizes many operations: how many there are of each size and in each tenth of the range, and the number
// of blocks that they begin at.
type drawn struct {
	sizes  map[int]int
	tenths [10]int
	blocks map[int64]bool
	follow int     // how many begin where the previous one ended
	end    int64   // of the last one
	first  []int64 // offsets of the first ones
}

func (d *drawn) add(offset int64, bytes int, span int64) {
	if d.sizes == nil {
		d.sizes, d.blocks = map[int]int{}, map[int64]bool{}
	}
	d.sizes[bytes]++
	d.tenths[offset*10/span]++
	d.blocks[offset] = true
	if len(d.first) < 100 {
		d.first = append(d.first, offset)
	}
	if offset == d.end {
		d.follow++
	}
	d.end = offset + int64(bytes)
}

// byFio makes fio draw, and reads what it did from its I/O log.
func byFio(t *testing.T, span int64, n int, options ...string) *drawn {
	t.Helper()
	fio, err := exec.LookPath("fio")
	if err != nil {
		t.Skip("to draw beside fio takes fio: tests/setup.sh installs it")
	}
	log := filepath.Join(t.TempDir(), "log")
	args := append([]string{"--name=x", "--ioengine=null", "--rw=randread", fmt.Sprintf("--size=%d", span),
		fmt.Sprintf("--number_ios=%d", n), "--write_iolog=" + log}, options...)
	if out, err := exec.Command(fio, args...).CombinedOutput(); err != nil {
		t.Fatalf("fio %v: %v: %s", args, err, out)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := &drawn{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		at := strings.Index(lines.Text(), " read ")
		if at < 0 {
			continue
		}
		var offset int64
		var bytes int
		if _, err := fmt.Sscan(lines.Text()[at+len(" read "):], &offset, &bytes); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		d.add(offset, bytes, span)
	}
	return d
}

// Sizes and offsets are drawn as fio draws them.
func TestDrawsAsFio(t *testing.T) {
	const span, draws = 1 << 30, 20_000
	for _, c := range []struct {
		options string
		change  func(*Spec)
	}{
		{"--bsrange=4k-16k --norandommap", func(s *Spec) { s.BS[Read] = Range(4096, 16384) }},
		{"--bsrange=8k-24k --norandommap", func(s *Spec) { s.BS[Read] = Range(8192, 24576) }},
		{"--bs=4k --blockalign=64k --norandommap", func(s *Spec) { s.Align[Read] = 64 << 10 }},
		{"--bsrange=4k-16k --blockalign=8k --norandommap", func(s *Spec) { s.BS[Read], s.Align[Read] = Range(4096, 16384), 8192 }},
		{"--bs=16k --blockalign=4k --norandommap", func(s *Spec) { s.BS[Read], s.Align[Read] = Fixed(16<<10), 4096 }},
		{"--random_distribution=normal:1", func(s *Spec) { s.Distribution = Distribution{Normal, 1} }},
		{"--random_distribution=normal:20", func(s *Spec) { s.Distribution = Distribution{Normal, 20} }},
		{"--random_distribution=normal:50", func(s *Spec) { s.Distribution = Distribution{Normal, 50} }},
		{"--percentage_random=30 --norandommap", func(s *Spec) { s.Sequential[Read] = 70 }},
		{"--percentage_random=80 --norandommap --bs=16k", func(s *Spec) { s.Sequential[Read], s.BS[Read] = 20, Fixed(16<<10) }},
		{"--percentage_random=60 --norandommap --bsrange=4k-16k", func(s *Spec) { s.Sequential[Read], s.BS[Read] = 40, Range(4096, 16384) }},
		{"--percentage_random=70 --random_distribution=zoned:60/10:40/90", func(s *Spec) {
			s.Sequential[Read] = 30
			zones(Zone{60, 10, 0}, Zone{40, 90, 0})(s)
		}},
		{"--rw=randread:8 --norandommap", func(s *Spec) { s.RunLength = 8 }},
		{"--rw=randread:3 --norandommap --percentage_random=50", func(s *Spec) { s.RunLength, s.Sequential[Read] = 3, 50 }},
		{"--random_distribution=zoned:60/10:30/20:10/70", zones(Zone{60, 10, 0}, Zone{30, 20, 0}, Zone{10, 70, 0})},
		{"--random_distribution=zoned_abs:60/100m:40/924m", zones(Zone{60, 0, 100 << 20}, Zone{40, 0, 924 << 20})},
	} {
		t.Run(c.options, func(t *testing.T) {
			t.Parallel() // fio takes a second to exit
			theirs := byFio(t, span, draws, strings.Fields(c.options)...)
			s := spec("randread")
			s.NoRandomMap = true
			c.change(&s)
			if err := s.Validate(span, 4096); err != nil {
				t.Fatal(err)
			}
			p, ours := newPattern(&s, 0, span), &drawn{}
			for range draws {
				bytes := p.sizes.next(Read)
				ours.add(p.offset(Read, bytes), bytes, span)
			}
			compare := func(what string, a, b int) {
				t.Helper()
				// Two draws of the same number practically never differ by more than six times its square root.
				if far := 6 * math.Sqrt(float64(a+b)+1); math.Abs(float64(a-b)) > far {
					t.Errorf("%s: %d of %d, and %d with fio", what, a, draws, b)
				}
			}
			for bytes := range theirs.sizes {
				compare(fmt.Sprintf("%d bytes", bytes), ours.sizes[bytes], theirs.sizes[bytes])
			}
			for i := range ours.tenths {
				compare(fmt.Sprintf("tenth %d", i), ours.tenths[i], theirs.tenths[i])
			}
			compare("sequential", ours.follow, theirs.follow)
			if a, b := float64(len(ours.blocks)), float64(len(theirs.blocks)); math.Abs(a-b) > b/100 || len(ours.sizes) != len(theirs.sizes) {
				t.Errorf("%v blocks, %d sizes, and with fio %v, %d", a, len(ours.sizes), b, len(theirs.sizes))
			}
		})
	}
}

// TestSkipsAsFio: sequential operations are as far apart as fio's. Where they go back from the end, fio begins one
// operation later.
func TestSkipsAsFio(t *testing.T) {
	const span, draws = 1 << 20, 100
	for _, skip := range []int64{4096, 12 << 10, 36 << 10, -8 << 10, -12 << 10} {
		theirs := byFio(t, span, draws, fmt.Sprintf("--rw=read:%d", skip))
		s := spec("read")
		s.Skip = skip
		p, ours := newPattern(&s, 0, span), &drawn{}
		for range draws {
			ours.add(p.offset(Read, 4096), 4096, span)
		}
		if skip < 0 {
			ours.first, theirs.first = slices.Delete(ours.first, 1, 2), theirs.first[:draws-1]
		}
		if !slices.Equal(ours.first, theirs.first) {
			t.Errorf("rw=read:%d: %v, and with fio %v", skip, ours.first, theirs.first)
		}
	}
}
