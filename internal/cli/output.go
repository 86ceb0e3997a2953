package cli

import (
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/pflag"
)

// Format is how a command prints, as set by -o.
type Format string

// The formats, as nvme-cli and fio name them.
const (
	Normal   Format = "normal" // for people
	JSON     Format = "json"
	JSONPlus Format = "json+" // fio's, with more detail
	Terse    Format = "terse" // fio's, in one line
)

// OutputFlag adds -o to flags, which sets f to Normal, JSON, or what the command has more.
func OutputFlag(flags *pflag.FlagSet, f *Format, more ...Format) {
	*f = Normal
	names := []string{string(Normal), string(JSON)}
	for _, m := range more {
		names = append(names, string(m))
	}
	flags.VarP(&formatValue{f, names}, "output-format", "o", "`FORMAT`: "+Or(names))
	Offer(flags, "output-format", names)
}

// Or joins choices with commas and "or".
func Or(choices []string) string { return english.WordSeries(choices, "or") }

// formatValue is the flag's value: a Format that is one of all.
type formatValue struct {
	to  *Format
	all []string
}

func (v *formatValue) String() string { return string(*v.to) }
func (v *formatValue) Type() string   { return "string" } // help puts the default of a string in quotes

func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.all, s) {
		return errors.New("want " + Or(v.all))
	}
	*v.to = Format(s)
	return nil
}

// PrintJSON writes v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // keeps fio's member ">=64" as it is
	return e.Encode(v)
}

// NewTable returns a table in the style of all of ours.
func NewTable(w io.Writer, head ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleLight
	style.Options.DrawBorder = false
	style.Options.SeparateColumns = false
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(head)
	return t
}
