package cli

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/pflag"
)

// Format is how a command prints, as -o says.
type Format string

// The formats, as nvme-cli and fio name them.
const (
	Normal   Format = "normal" // for people
	JSON     Format = "json"
	JSONPlus Format = "json+" // fio's, with more
)

// OutputFlag adds -o to flags, which sets f to Normal, JSON, or what the command has more.
func OutputFlag(flags *pflag.FlagSet, f *Format, more ...Format) {
	*f = Normal
	v := &formatValue{f, append([]Format{Normal, JSON}, more...)}
	flags.VarP(v, "output-format", "o", "`FORMAT`: "+v.choices())
}

// formatValue is a Format that is one of some.
type formatValue struct {
	to  *Format
	all []Format
}

func (v *formatValue) String() string { return string(*v.to) }
func (v *formatValue) Type() string   { return "string" } // whose default help puts into quotes

// Choices are what Set takes.
func (v *formatValue) Choices() []string {
	var names []string
	for _, f := range v.all {
		names = append(names, string(f))
	}
	return names
}

func (v *formatValue) choices() string {
	names := v.Choices()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.all, Format(s)) {
		return errors.New("want " + v.choices())
	}
	*v.to = Format(s)
	return nil
}

// PrintJSON writes v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// NewTable is a table in the style of all of ours.
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
