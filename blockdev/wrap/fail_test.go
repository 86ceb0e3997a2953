package wrap_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

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
