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
	Normal Format = "normal" // for people
	JSON   Format = "json"
)

var formats = []string{string(Normal), string(JSON)}

// OutputFlag adds -o to flags, which sets f to Normal or JSON.
func OutputFlag(flags *pflag.FlagSet, f *Format) {
	*f = Normal
	flags.VarP((*formatValue)(f), "output-format", "o", "`FORMAT`: "+Or(formats))
	Offer(flags, "output-format", formats)
}

// Or joins choices with commas and "or".
func Or(choices []string) string { return english.WordSeries(choices, "or") }

// formatValue is the flag's value.
type formatValue Format

func (v *formatValue) String() string { return string(*v) }
func (v *formatValue) Type() string   { return "string" } // help puts the default of a string in quotes

func (v *formatValue) Set(s string) error {
	if !slices.Contains(formats, s) {
		return errors.New("want " + Or(formats))
	}
	*v = formatValue(s)
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
