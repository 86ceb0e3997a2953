package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
)

// What bench has beyond the other commands' formats.
const (
	terse    cli.Format = "terse" // a line for each job
	jsonPlus cli.Format = "json+" // with every latency that was counted
)

// formats is how bench prints, as set by -o: in one form, or in several one after another, as fio does.
type formats []cli.Format

// benchFormats are those that -o takes.
var benchFormats = []string{string(cli.Normal), string(cli.JSON), string(terse), string(jsonPlus)}

// add adds -o to flags.
func (f *formats) add(fl *pflag.FlagSet) {
	*f = formats{cli.Normal}
	fl.VarP(f, "output-format", "o", "`FORMAT`: "+cli.Or(benchFormats)+
		" with every latency that was counted; or several with commas between")
	cli.Offer(fl, "output-format", benchFormats)
}

func (f *formats) String() string {
	names := make([]string, len(*f))
	for i, one := range *f {
		names[i] = string(one)
	}
	return strings.Join(names, ",")
}

func (f *formats) Type() string { return "string" } // help puts the default of a string in quotes

func (f *formats) Set(s string) error {
	*f = nil
	for name := range strings.SplitSeq(s, ",") {
		if !slices.Contains(benchFormats, name) {
			return errors.New("want " + cli.Or(benchFormats))
		}
		*f = append(*f, cli.Format(name))
	}
	return nil
}

func (f *formats) has(one cli.Format) bool { return slices.Contains(*f, one) }

// only reports whether f has no other format.
func (f *formats) only(one cli.Format) bool {
	return !slices.ContainsFunc(*f, func(o cli.Format) bool { return o != one })
}

// forPrograms prints a report in the formats for programs, and in fio's order whatever that of f; json+ has all that
// json has.
func (f *formats) forPrograms(w io.Writer, r *fio.Report, d *benchDevice) error {
	if len(r.Jobs) == 0 {
		return nil
	}
	var err error
	if f.has(terse) {
		err = r.Terse(w)
	}
	if f.has(cli.JSON) || f.has(jsonPlus) {
		r.End(time.Now())
		if d.multi != nil {
			r.Paths = pathsJSON(d.multi.Subsystem)
		}
		err = errors.Join(err, cli.PrintJSON(w, r))
	}
	return err
}

// tables takes the tables for people. They are printed at once, or, if there are other formats, after those, as by
// fio, and behind an empty line.
type tables struct {
	w    io.Writer
	late bool
	held bytes.Buffer
}

func (f *formats) tables(w io.Writer) *tables { return &tables{w: w, late: !f.only(cli.Normal)} }

func (t *tables) Write(b []byte) (int, error) {
	if t.late {
		return t.held.Write(b)
	}
	return t.w.Write(b)
}

// flush prints what was held back.
func (t *tables) flush() error {
	if t.held.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(t.w, "\n"+t.held.String())
	return err
}
