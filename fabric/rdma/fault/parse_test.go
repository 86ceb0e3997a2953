package fault

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// of returns a probability as Parse computes it; a constant would be exact.
func of(percent float64) float64 { return percent / 100 }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Config
	}{
		{"loss=1%", Config{Loss: 0.01}},
		{"loss=25%,dup=5%", Config{Loss: 0.25, Duplicate: 0.05}},
		{"delay=200us±50us", Config{Delay: 200 * time.Microsecond, Jitter: 50 * time.Microsecond}},
		{"delay=2ms+-1ms", Config{Delay: 2 * time.Millisecond, Jitter: time.Millisecond}},
		{"delay=1s", Config{Delay: time.Second}},
		{"reorder=10%+3ms, corrupt=0.1%", Config{Reorder: 0.1, ReorderDelay: 3 * time.Millisecond, Corrupt: 0.001}},
		{"cut=5s", Config{Cuts: []Cut{{After: 5 * time.Second}}}},
		{"cut=in:1s+2s,cut=out:4s", Config{Cuts: []Cut{{In, time.Second, 2 * time.Second}, {Out, 4 * time.Second, 0}}}},
		{"seed=7", Config{Seed: 7}},
		{"loss=33.333333%,dup=12.3456789012345%", Config{Loss: of(33.333333), Duplicate: of(12.3456789012345)}},
		{"corrupt=0.0000001%", Config{Corrupt: of(0.0000001)}},
		{"reorder=0%+5ms", Config{ReorderDelay: 5 * time.Millisecond}},
		{"loss=0%", Config{}},
	} {
		got, err := Parse(c.in)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", c.in, got, err, c.want)
		}
		if again, err := Parse(got.String()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%q reads as %+v, %v; want %+v", got.String(), again, err, got)
		}
	}
}

// Invalid values are refused, naming the key.
func TestParseRefuses(t *testing.T) {
	for in, names := range map[string]string{
		"":                     "loss, dup",
		"loss":                 "loss, dup",
		"los=1%":               "los=1%",
		"loss=101%":            "loss=101%",
		"loss=-1%":             "loss=-1%",
		"loss=1":               "loss=1: want a share", // not everything
		"dup=0.5":              "dup=0.5: want a share",
		"loss=NaN":             "loss=NaN",
		"loss=1%,loss=2%":      "loss is given twice",
		"delay=5":              "delay=5",
		"delay=1ms±2ms":        "Jitter",
		"delay=20s":            "Delay",
		"reorder=1%+x":         "reorder=1%+x",
		"cut=":                 "cut=",
		"cut=-5s":              "cut=-5s",
		"seed=0":               "seed=0",
		"loss=1%,,delay=200us": "want one of",
	} {
		if _, err := Parse(in); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("Parse(%q): %v; want an error that names %q", in, err, names)
		}
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzzing.New(tf)
	for _, s := range []string{"loss=1%,dup=50%,reorder=1%+2ms,corrupt=1e-1%", "delay=200us±50us,seed=7", "cut=in:5s+2s,cut=9s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Parse(s)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("Parse(%q) gives what can't be: %v", s, err)
		}
		text := c.String()
		again, err := Parse(text)
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%q is written as %q and read as %+v, %v; want %+v", s, text, again, err, c)
		}
	})
}

// TestBadCuts: a cut that can't be is refused with what is wrong with it.
func TestBadCuts(t *testing.T) {
	for names, cut := range map[string]Cut{
		"Way 3":     {Way: Out + 1},
		"After -1s": {After: -time.Second},
		"For -2s":   {For: -2 * time.Second},
	} {
		c := Config{Cuts: []Cut{{}, cut}}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%v; want an error that names %q", err, names)
		}
	}
}

// TestLongCut: a cut that is as long as a time can be lasts.
func TestLongCut(t *testing.T) {
	c := Conn{cfg: Config{Cuts: []Cut{{After: time.Second, For: math.MaxInt64}}}, opened: time.Now().Add(-time.Minute)}
	if !c.isCut(In) {
		t.Error("packets pass")
	}
}

// TestCutBegins: a cut begins and ends at its times, and concerns its own direction.
func TestCutBegins(t *testing.T) {
	for _, c := range []struct {
		cut  Cut
		open time.Duration
		want [2]bool // In, Out
	}{
		{Cut{Both, time.Hour, 0}, time.Minute, [2]bool{false, false}},
		{Cut{Both, time.Hour, 0}, 100 * time.Hour, [2]bool{true, true}},
		{Cut{In, time.Hour, time.Hour}, time.Minute, [2]bool{false, false}},
		{Cut{In, time.Hour, time.Hour}, 90 * time.Minute, [2]bool{true, false}},
		{Cut{Out, time.Hour, time.Hour}, 90 * time.Minute, [2]bool{false, true}},
		{Cut{Out, time.Hour, time.Hour}, 3 * time.Hour, [2]bool{false, false}},
	} {
		f := Conn{cfg: Config{Cuts: []Cut{c.cut}}, opened: time.Now().Add(-c.open)}
		if got := [2]bool{f.isCut(In), f.isCut(Out)}; got != c.want {
			t.Errorf("%+v, %v after the beginning: in and out are cut: %v, want %v", c.cut, c.open, got, c.want)
		}
	}
}
