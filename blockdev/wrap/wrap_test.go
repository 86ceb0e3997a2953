package wrap_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type opener = func(blockdev.Options) (blockdev.Volume, error)

// Every wrapper passes the volumes' suite, on memory and on a file.
func TestSuite(t *testing.T) {
	const stack = "check:freeze:1h+1s:fail:read@1000000-1000001,any%0:delay:0s-5us:"
	t.Run("mem", func(t *testing.T) {
		volumetest.Run(t, volumetest.Config{Volatile: true, New: func(*testing.T) opener {
			return func(o blockdev.Options) (blockdev.Volume, error) {
				return blockdev.Open(stack+"mem:", o, wrap.Kinds()...)
			}
		}})
	})
	t.Run("file", func(t *testing.T) {
		volumetest.Run(t, volumetest.Config{New: func(t *testing.T) opener {
			path := filepath.Join(t.TempDir(), "v")
			return func(o blockdev.Options) (blockdev.Volume, error) {
				return blockdev.Open(stack+path, o, wrap.Kinds()...)
			}
		}})
	})
}

func open(t *testing.T, spec string) blockdev.Volume {
	t.Helper()
	v, err := blockdev.Open(spec, blockdev.Options{}, wrap.Kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

func TestSpecs(t *testing.T) {
	const file = "check:nosuch:1MiB" // which may have such a name
	for spec, word := range map[string]string{
		"delay:mem:1MiB":             "2ms",
		"delay:2ms":                  "no volume",
		"delay:5ms-1ms:mem:1MiB":     "2ms",
		"delay:-1ms:mem:1MiB":        "2ms",
		"fail:read:mem:1MiB":         "neither",
		"fail:read@5-4:mem:1MiB":     "no range",
		"fail:erase@5:mem:1MiB":      `"erase"`,
		"fail:read@5=bad:mem:1MiB":   `"bad"`,
		"fail:any%101:mem:1MiB":      "percentage",
		"fail:any%NaN:mem:1MiB":      "percentage",
		"fail:any%-1:mem:1MiB":       "percentage",
		"fail:any%some:mem:1MiB":     "percentage",
		"fail:read@some:mem:1MiB":    "no range",
		"fail:read@5-some:mem:1MiB":  "no range",
		"fail:read@-5:mem:1MiB":      "no range",
		"freeze:5s:mem:1MiB":         "10s+5s",
		"freeze:5s+0s:mem:1MiB":      "10s+5s",
		"freeze:-1s+5s:mem:1MiB":     "10s+5s",
		"freeze:some+5s:mem:1MiB":    "10s+5s",
		"freeze:5s+some:mem:1MiB":    "10s+5s",
		"check:":                     "no volume",
		file:                         "delay:TIME:VOLUME",
		"check:delay:1ms:mem:banana": "banana",
	} {
		v, err := blockdev.Open(spec, blockdev.Options{}, wrap.Kinds()...)
		if err == nil {
			v.Close()
		}
		if !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want an error with %q", spec, err, word)
		}
		if spec == file {
			continue
		}
		err = blockdev.CheckSpec(spec, blockdev.Options{}, wrap.Kinds()...)
		if !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: checked with %v, want an error with %q", spec, err, word)
		}
	}
	if err := blockdev.CheckSpec("check:delay:1ms:mem:1MiB", blockdev.Options{}, wrap.Kinds()...); err != nil {
		t.Error(err)
	}
	v := open(t, "check:delay:1ms-2ms:fail:read@7,write%0.5=capacity:freeze:1h+1s:mem:1MiB")
	want := "memory; can freeze; failing read@7-7 write%0.5=capacity; delayed by 1ms to 2ms; checked"
	if m := v.Info().Mode; m != want {
		t.Errorf("mode %q, want %q", m, want)
	}
	if len(wrap.Find[*wrap.Freezer](v)) != 1 || len(wrap.Find[*wrap.Checker](v)) != 1 {
		t.Error("a layer isn't found")
	}
	for spec, inner := range map[string]string{
		"check:delay:1ms:mem:1MiB": "mem:1MiB", "disk.img": "disk.img", "fail:read%1": "fail:read%1", "./check:x": "./check:x",
		"check": "check",
	} {
		if got := wrap.Innermost(spec); got != inner {
			t.Errorf("innermost of %s: %s", spec, got)
		}
	}
}

func FuzzRules(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add("read@100-200,write%0.5=capacity")
	f.Add("any%100=gone")
	f.Fuzz(func(t *testing.T, s string) {
		rules, err := wrap.ParseRules(s)
		if err != nil {
			return
		}
		var text []string
		for _, r := range rules {
			text = append(text, r.String())
		}
		again, err := wrap.ParseRules(strings.Join(text, ","))
		if err != nil || len(again) != len(rules) {
			t.Fatalf("%q is written %q: %v", s, text, err)
		}
		for i := range rules {
			if rules[i].String() != again[i].String() {
				t.Errorf("%q is written %q", s, text)
			}
		}
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := open(t, "delay:20ms-30ms:mem:1MiB")
		c := volumetest.NewClient(v)
		times := map[time.Duration]bool{}
		for range 20 {
			began := time.Now()
			if err := c.Write(make([]byte, 4096), 0, false); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < 20*time.Millisecond || took > 30*time.Millisecond {
				t.Errorf("a write took %v", took)
			} else {
				times[took] = true
			}
		}
		if len(times) < 2 {
			t.Errorf("all took the same time: %v", times)
		}
		v.Close()
	})
}

// TestDelayOfSlow: however long the volume below takes, the answer comes after its own.
func TestDelayOfSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frozen = 24 * time.Hour
		v := open(t, "delay:1ms:freeze:0s+24h:mem:1MiB")
		synctest.Wait()
		began := time.Now()
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, false); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != frozen+time.Millisecond {
			t.Errorf("a write took %v", took)
		}
		v.Close()
	})
}

func TestFail(t *testing.T) {
	v := open(t, "fail:read@8-15,write@3=capacity,flush%100=busy,discard@0=gone,zeroes@0=readonly:mem:1MiB")
	c := volumetest.NewClient(v)
	b := make([]byte, 2*4096)
	for _, x := range []struct {
		op    blockdev.Op
		block int64
		kind  error
		at    int64
	}{
		{blockdev.OpRead, 6, nil, 0},
		{blockdev.OpRead, 7, blockdev.ErrMedium, 8},
		{blockdev.OpRead, 15, blockdev.ErrMedium, 15},
		{blockdev.OpRead, 16, nil, 0},
		{blockdev.OpWrite, 2, blockdev.ErrCapacity, 3},
		{blockdev.OpWrite, 8, nil, 0},
		{blockdev.OpFlush, 0, blockdev.ErrBusy, -1},
		{blockdev.OpDiscard, 0, blockdev.ErrGone, 0},
		{blockdev.OpDiscard, 1, nil, 0},
		{blockdev.OpWriteZeroes, 0, blockdev.ErrReadOnly, 0},
	} {
		err := c.Do(blockdev.Request{Op: x.op, Offset: x.block * 4096, Length: int64(len(b)), Bufs: [][]byte{b}})
		var oe *blockdev.OpError
		switch {
		case x.kind == nil && err == nil:
		case !errors.Is(err, x.kind) || !errors.As(err, &oe):
			t.Errorf("%s of block %d: %v, want %v", x.op, x.block, err, x.kind)
		case x.at >= 0 && oe.Offset != x.at*4096:
			t.Errorf("%s of block %d: %v, want block %d named", x.op, x.block, err, x.at)
		}
	}
	v = open(t, "fail:read%25:mem:1MiB")
	c, failed := volumetest.NewClient(v), 0
	for range 4000 {
		if c.Read(b, 0) != nil {
			failed++
		}
	}
	if failed < 800 || failed > 1200 {
		t.Errorf("%d of 4000 reads failed, want a quarter", failed)
	}
}

// TestFailAny: a rule for any operation holds for all; one for blocks holds for none that touches no block. A request
// that the volume refuses anyway is refused for that reason.
func TestFailAny(t *testing.T) {
	b := make([]byte, 4096)
	ops := []blockdev.Op{blockdev.OpRead, blockdev.OpWrite, blockdev.OpFlush, blockdev.OpDiscard, blockdev.OpWriteZeroes}
	for rule, untouched := range map[string]blockdev.Op{"any%100": 0, "any@0": blockdev.OpFlush} {
		c := volumetest.NewClient(open(t, "fail:"+rule+":mem:1MiB"))
		for _, op := range ops {
			r := blockdev.Request{Op: op, Length: 4096, Bufs: [][]byte{b}} // a flush has no range, whatever is there
			if err := c.Do(r); errors.Is(err, blockdev.ErrMedium) == (op == untouched) {
				t.Errorf("%s: %s: %v", rule, op, err)
			}
		}
		if err := c.Read(b, 1<<20); !errors.Is(err, blockdev.ErrRange) {
			t.Errorf("%s: a read beyond the end: %v", rule, err)
		}
	}
	if err := volumetest.NewClient(open(t, "fail:any@0:mem:1MiB")).Read(nil, 0); err != nil {
		t.Errorf("a read of no block: %v", err)
	}
}

// TestClosed: each wrapper answers what is submitted after it was closed.
func TestClosed(t *testing.T) {
	for _, spec := range []string{"delay:1ms:", "fail:any%100:", "freeze:manual:", "check:"} {
		v := open(t, spec+"mem:1MiB")
		if err := v.Close(); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		if err := volumetest.NewClient(v).Read(make([]byte, 4096), 0); !errors.Is(err, blockdev.ErrGone) {
			t.Errorf("%s: read: %v", spec, err)
		}
		if err := v.Close(); !errors.Is(err, blockdev.ErrGone) {
			t.Errorf("%s: closing again: %v", spec, err)
		}
	}
}

// asking is a volume whose writes had to wait: it drops those that are no longer wanted.
type asking struct{ blockdev.Volume }

func (a asking) Submit(r *blockdev.Request) {
	if r.Unwanted != nil && r.Unwanted() {
		i := a.Info()
		r.End(i.Fail(r.Op, r.Offset, blockdev.ErrUnwanted, nil))
		return
	}
	a.Volume.Submit(r)
}

// TestUnwanted: a volume that asks whether a write is wanted gets the answer below wrappers too; a dropped write isn't
// taken for written, nor the next one for unwanted.
func TestUnwanted(t *testing.T) {
	m, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v := wrap.NewChecker(wrap.NewFreezer(wrap.NewFail(wrap.NewDelay(asking{m}, 0, 0))))
	defer v.Close()
	done := make(chan error, 1)
	do := func(op blockdev.Op, b []byte, unwanted func() bool) error {
		v.Submit(&blockdev.Request{Op: op, Length: int64(len(b)), Bufs: [][]byte{b}, Unwanted: unwanted,
			Complete: func(r *blockdev.Request) { done <- r.Err }})
		return <-done
	}
	one, two, got := bytes.Repeat([]byte{1}, 4096), bytes.Repeat([]byte{2}, 4096), make([]byte, 4096)
	if err := do(blockdev.OpWrite, one, func() bool { return false }); err != nil {
		t.Error(err)
	}
	if err := do(blockdev.OpWrite, two, func() bool { return true }); !errors.Is(err, blockdev.ErrUnwanted) {
		t.Errorf("a write that nobody wants: %v", err)
	}
	if err := do(blockdev.OpRead, got, nil); err != nil || !bytes.Equal(got, one) {
		t.Errorf("it was made, or %v", err)
	}
	if err := do(blockdev.OpWrite, two, nil); err != nil {
		t.Errorf("the next: %v", err)
	}
}

func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := open(t, "freeze:10s+5s:mem:1MiB")
		c := volumetest.NewClient(v)
		began := time.Now()
		read := func() {
			t.Helper()
			if err := c.Read(make([]byte, 4096), 0); err != nil {
				t.Fatal(err)
			}
		}
		read()
		time.Sleep(9 * time.Second)
		read()
		if d := time.Since(began); d != 9*time.Second {
			t.Errorf("a read waited: %v", d)
		}
		time.Sleep(1500 * time.Millisecond)
		read()
		if d := time.Since(began); d != 15*time.Second {
			t.Errorf("the frozen read ended after %v, want 15s", d)
		}
		f := wrap.Find[*wrap.Freezer](v)[0]
		f.Freeze()
		answered := make(chan error, 1)
		go func() { answered <- c.Write(make([]byte, 4096), 0, true) }()
		synctest.Wait()
		select {
		case err := <-answered:
			t.Fatalf("a frozen volume answered: %v", err)
		default:
		}
		if err := v.Close(); err != nil { // which must not hang
			t.Error(err)
		}
		if err := <-answered; err != nil {
			t.Errorf("the write that waited: %v", err)
		}
	})
}

// TestScrubFrozen: a scrub of a volume that hangs ends with its context, and the volume can be closed.
func TestScrubFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := open(t, "check:freeze:manual:mem:1MiB")
		if err := volumetest.NewClient(v).Write(make([]byte, 4096), 0, false); err != nil {
			t.Fatal(err)
		}
		wrap.Find[*wrap.Freezer](v)[0].Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := wrap.Find[*wrap.Checker](v)[0].Scrub(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("scrub: %v", err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCheck changes blocks behind the checker's back.
func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	inner, err := blockdev.OpenFile(path, blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := wrap.NewChecker(inner)
	defer k.Close()
	c, behind := volumetest.NewClient(k), volumetest.NewClient(inner)
	b := make([]byte, 64*4096)
	for i := range b {
		b[i] = byte(i / 4096)
	}
	if err := c.Write(b, 0, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 64 * 4096, Length: 4 * 4096}); err != nil {
		t.Fatal(err)
	}
	if found, err := k.Scrub(t.Context()); err != nil || found != (wrap.Scrubbed{Blocks: 68}) {
		t.Errorf("scrub: %+v, %v", found, err)
	}
	b[5*4096+100] ^= 1
	if err := behind.Write(b[5*4096:][:4096], 5*4096, false); err != nil {
		t.Fatal(err)
	}
	if err := behind.Write(b[:4096], 66*4096, false); err != nil { // zeroes in its place
		t.Fatal(err)
	}
	if err := behind.Write(b[6*4096:][:4096], 67*4096, false); err != nil {
		t.Fatal(err)
	}
	var oe *blockdev.OpError
	err = c.Read(b, 0)
	if !errors.Is(err, wrap.ErrChecksum) || !errors.Is(err, blockdev.ErrMedium) || !errors.As(err, &oe) || oe.Offset != 5*4096 {
		t.Errorf("a changed block is read with %v", err)
	}
	if err := c.Read(b[:5*4096], 0); err != nil {
		t.Errorf("blocks beside it: %v", err)
	}
	if found, err := k.Scrub(t.Context()); !errors.Is(err, wrap.ErrChecksum) || found != (wrap.Scrubbed{Blocks: 68, Bad: 2}) {
		t.Errorf("scrub: %+v, %v", found, err)
	}
	if err := c.Write(b[:4096], 5*4096, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: 67 * 4096, Length: 4096}); err != nil {
		t.Fatal(err)
	}
	if found, err := k.Scrub(t.Context()); err != nil || found.Bad != 0 {
		t.Errorf("scrub after writing anew: %+v, %v", found, err)
	}
}

// byHand is a volume that keeps discarded data, holds writes until the test answers them, and fails reads when told to.
type byHand struct {
	blockdev.Volume
	holds, fails bool
	held         []*blockdev.Request
}

func (h *byHand) Submit(r *blockdev.Request) {
	i := h.Info()
	switch {
	case r.Op == blockdev.OpDiscard:
		r.End(nil)
	case r.Op != blockdev.OpRead && h.holds:
		h.held = append(h.held, r)
	case r.Op == blockdev.OpRead && h.fails:
		r.End(i.Fail(r.Op, r.Offset, blockdev.ErrMedium, nil))
	default:
		h.Volume.Submit(r)
	}
}

// TestCheckKnows: a block's content is known from its first read and from its last write, unless that overlapped
// another write or the block was discarded since.
func TestCheckKnows(t *testing.T) {
	m, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h := &byHand{Volume: m}
	k := wrap.NewChecker(h)
	defer k.Close()
	c, behind := volumetest.NewClient(k), volumetest.NewClient(m)
	fill := func(x byte) []byte { return bytes.Repeat([]byte{x}, 4096) }
	read := func(when string, off int64, x byte, want error) {
		t.Helper()
		got := make([]byte, 4096)
		if err := c.Read(got, off); !errors.Is(err, want) || got[0] != x {
			t.Errorf("%s: %d, %v; want %d, %v", when, got[0], err, x, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	read("never written", 0, 0, nil)
	must(behind.Write(fill(1), 0, false))
	read("changed since it was read", 0, 1, wrap.ErrChecksum)

	must(c.Write(fill(1), 4096, false))
	must(c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: 4096, Length: 4096}))
	read("discarded, to no effect", 4096, 1, nil)

	h.holds = true
	for x := range byte(2) { // two overlapping writes that end in the other order
		k.Submit(&blockdev.Request{Op: blockdev.OpWrite, Offset: 8192, Length: 4096, Bufs: [][]byte{fill(1 + x)},
			Complete: func(r *blockdev.Request) { must(r.Err) }})
	}
	must(behind.Write(fill(2), 8192, false))
	h.held[1].End(nil)
	read("one of two ended", 8192, 2, nil)
	h.held[0].End(nil)
	h.holds = false
	read("written by two at once", 8192, 2, nil)
	must(c.Write(fill(3), 8192, false))
	must(behind.Write(fill(4), 8192, false))
	read("changed since one wrote it", 8192, 4, wrap.ErrChecksum)

	failed := errors.New("failed")
	for _, op := range []blockdev.Op{blockdev.OpWrite, blockdev.OpWriteZeroes} {
		h.holds, h.held = true, nil
		k.Submit(&blockdev.Request{Op: op, Offset: 8192, Length: 4096, Bufs: [][]byte{fill(5)}, Complete: func(*blockdev.Request) {}})
		h.held[0].End(failed)
		h.holds = false
		read("not written by a "+op.String()+" that failed", 8192, 4, nil)
	}

	read("apart from the others", 100*4096, 0, nil)
	h.fails = true
	if found, err := k.Scrub(t.Context()); !errors.Is(err, blockdev.ErrMedium) || found.Blocks != 4 || found.Errors != 4 || found.Bad != 0 {
		t.Errorf("a scrub that can't read: %+v, %v", found, err)
	}
	must(k.Close())
	if found, err := k.Scrub(t.Context()); !errors.Is(err, blockdev.ErrGone) || found.Blocks == 4 {
		t.Errorf("a scrub of a closed volume goes on: %+v, %v", found, err)
	}
}

// TestCheckUntouched: what is known of a block isn't changed by a request that is refused, nor by a flush, whatever range
// that has.
func TestCheckUntouched(t *testing.T) {
	m, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := wrap.NewChecker(m)
	defer k.Close()
	c, behind := volumetest.NewClient(k), volumetest.NewClient(m)
	const last = 1<<20 - 4096
	b := bytes.Repeat([]byte{1}, 8192)
	if err := c.Write(b[:4096], last, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpFlush, Offset: last, Length: 4096}); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(b[:4096], last); err != nil {
		t.Errorf("after a flush: %v", err)
	}
	if err := c.Write(b, last, false); !errors.Is(err, blockdev.ErrRange) {
		t.Fatalf("a write beyond the end: %v", err)
	}
	if err := behind.Write(make([]byte, 4096), last, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(b[:4096], last); !errors.Is(err, wrap.ErrChecksum) {
		t.Errorf("changed after a write that was refused: %v", err)
	}
}

// TestCheckPieces: what is known of a long range doesn't reach beyond it, wherever it begins and ends.
func TestCheckPieces(t *testing.T) {
	const first, n, blocks = 512, 2048, 4096
	m, err := blockdev.NewMemory(blockdev.Options{Size: blocks * 4096})
	if err != nil {
		t.Fatal(err)
	}
	ones := bytes.Repeat([]byte{1}, 4096)
	if err := volumetest.NewClient(m).Write(bytes.Repeat(ones, blocks), 0, false); err != nil {
		t.Fatal(err)
	}
	k := wrap.NewChecker(m)
	defer k.Close()
	c := volumetest.NewClient(k)
	if err := c.Do(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: first * 4096, Length: n * 4096}); err != nil {
		t.Fatal(err)
	}
	if found, err := k.Scrub(t.Context()); err != nil || found != (wrap.Scrubbed{Blocks: n}) {
		t.Errorf("scrub: %+v, %v", found, err)
	}
	for b := int64(0); b < blocks; b += 256 {
		if err := c.Read(make([]byte, 4096), b*4096); err != nil {
			t.Error(err)
		}
	}
	for b := int64(0); b < blocks; b += 128 { // every other one was not read before
		if err := volumetest.NewClient(m).Write(bytes.Repeat([]byte{2}, 4096), b*4096, false); err != nil {
			t.Fatal(err)
		}
		known := b%256 == 0 || b >= first && b < first+n
		if err := c.Read(make([]byte, 4096), b*4096); errors.Is(err, wrap.ErrChecksum) != known {
			t.Errorf("block %d, changed: %v", b, err)
		}
	}
}

// TestCheckLarge: a discard, or write zeroes, of very many blocks takes little memory, and what is known of blocks
// around and among them is kept.
func TestCheckLarge(t *testing.T) {
	const size, most = int64(1) << 40, 64 << 20 // 268 million blocks
	v, err := blockdev.NewNull(blockdev.Options{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	h := &byHand{Volume: v}
	k := wrap.NewChecker(h)
	defer k.Close()
	c := volumetest.NewClient(k)
	must := func(r blockdev.Request) {
		t.Helper()
		if err := c.Do(r); err != nil {
			t.Fatal(err)
		}
	}
	read := func(b int64, want error) {
		t.Helper()
		if err := c.Read(make([]byte, 4096), b*4096); !errors.Is(err, want) {
			t.Errorf("block %d: %v, want %v", b, err, want)
		}
	}
	ones := [][]byte{bytes.Repeat([]byte{1}, 4096)} // which a null volume forgets
	write := func(b int64) {
		must(blockdev.Request{Op: blockdev.OpWrite, Offset: b * 4096, Length: 4096, Bufs: ones})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	write(0)
	write(5000)
	must(blockdev.Request{Op: blockdev.OpDiscard, Offset: 4096, Length: size - 4096})
	read(0, wrap.ErrChecksum)
	read(5000, nil)
	must(blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 4096, Length: size - 2*4096})
	write(5000)
	write(9000)
	for b, want := range map[int64]error{4999: nil, 5000: wrap.ErrChecksum, 5001: nil, 9000: wrap.ErrChecksum, size/4096 - 1: nil} {
		read(b, want)
	}

	h.holds = true
	done := func(*blockdev.Request) {}
	k.Submit(&blockdev.Request{Op: blockdev.OpWriteZeroes, Offset: 0, Length: size, Complete: done})
	k.Submit(&blockdev.Request{Op: blockdev.OpWrite, Offset: 7000 * 4096, Length: 4096, Bufs: ones, Complete: done})
	h.held[1].End(nil)
	h.held[0].End(nil)
	h.holds = false
	read(7000, nil) // the two overlapped
	write(7001)
	read(7001, wrap.ErrChecksum)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("%d MiB allocated", took>>20)
	}
}
