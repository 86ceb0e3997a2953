package main

import (
	"fmt"
	"reflect"

	"github.com/spf13/cobra"
)

// part describes a part of a field that is read bit by bit.
type part struct {
	high, low int
	name      string   // the specification's
	values    []string // the meaning of each value, if they are few
}

// flag is a single bit: 1 is yes.
func flag(bit int, name string) part { return part{bit, bit, name, nil} }

// span is several bits.
func span(high, low int, name string, values ...string) part { return part{high, low, name, values} }

// field shows the part of v as nvme-cli does. In JSON, where v is, it has none.
func (p *part) field(v uint64) field {
	v = v >> p.low & (1<<(p.high-p.low+1) - 1)
	text := fmt.Sprintf("%#x  %s", v, p.name)
	if v < uint64(len(p.values)) {
		text += ": " + p.values[v]
	}
	return field{fmt.Sprintf("  [%d:%d]", p.high, p.low), text, nil}
}

// parts shows all parts of v.
func parts(table []part, v uint64) []field {
	var fs []field
	for i := range table {
		fs = append(fs, table[i].field(v))
	}
	return fs
}

// bitName is what a bit is called.
type bitName[T ~uint32 | ~uint64] struct {
	bit  T
	name string
}

// setBits returns the names of those bits that are set in v.
func setBits[T ~uint32 | ~uint64](v T, names []bitName[T]) []string {
	var set []string
	for _, n := range names {
		if v&n.bit != 0 {
			set = append(set, n.name)
		}
	}
	return set
}

// addDecode defines -H, for commands that show bit fields.
func (f *connFlags) addDecode(c *cobra.Command) {
	c.Flags().BoolVarP(&f.decode, "human-readable", "H", false, "decode bit fields, except in JSON")
}

// decoded adds the parts of each bit field, if -H asks for them.
func (f *connFlags) decoded(fs []field) []field { return f.decodedBy(pageBits, fs) }

// decodedBy is decoded for a page that has tables of its own.
func (f *connFlags) decodedBy(tables map[string][]part, fs []field) []field {
	if !f.decode {
		return fs
	}
	var all []field
	for _, one := range fs {
		all = append(all, one)
		// vs is a property, and of Identify Namespace the vendor's bytes.
		if table, v := tables[one.name], reflect.ValueOf(one.value); table != nil && v.CanUint() {
			all = append(all, parts(table, v.Uint())...)
		}
	}
	return all
}
