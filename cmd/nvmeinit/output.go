package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// field is one field of an NVMe page, for people and for JSON.
type field struct {
	name  string
	text  string
	value any
}

// fields lists the fields of a page (a struct with the specification's names) in order, names
// in lower case as nvme-cli has them. Reserved fields, tables and vendor space are left out.
func fields(page any) []field {
	v := reflect.Indirect(reflect.ValueOf(page))
	var fs []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Name == "VendorSpecific" {
			continue
		}
		shown, value := show(f.Name, v.Field(i))
		if value != nil {
			fs = append(fs, field{strings.ToLower(f.Name), shown, value})
		}
	}
	return fs
}

// identifiers are the byte arrays that are no text.
var identifiers = map[string]bool{"IEEE": true, "FGUID": true, "NGUID": true, "EUI64": true}

// show gives a field's value: identifiers in hex, counts in decimal, bit fields (named integer
// types) in hex, what has a name by its name. In JSON numbers are numbers.
func show(name string, v reflect.Value) (shown string, value any) {
	switch v.Kind() {
	case reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return "", nil // tables are shown by their own command
		}
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		if shown = nvme.Text(b); identifiers[name] || !printable(shown) {
			shown = hex.EncodeToString(b)
		}
		return shown, shown
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		shown = fmt.Sprint(v.Uint())
		if s, ok := v.Interface().(fmt.Stringer); ok {
			shown = s.String()
		} else if v.Type().PkgPath() != "" {
			shown = fmt.Sprintf("%#x", v.Uint())
		}
		return shown, v.Uint()
	case reflect.Bool:
		return fmt.Sprint(v.Bool()), v.Bool()
	}
	if n, ok := v.Interface().(nvme.Uint128); ok {
		return n.String(), json.Number(n.String())
	}
	return "", nil
}

func printable(s string) bool {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return false
		}
	}
	return true
}

// minNameWidth keeps the columns of most pages at one place.
const minNameWidth = 10

// printFields shows fields as nvme-cli does: a line each, or a JSON object.
func printFields(w io.Writer, format string, fs []field) error {
	if format == "json" {
		return cli.PrintJSON(w, object(fs))
	}
	width := minNameWidth
	for _, f := range fs {
		width = max(width, len(f.name))
	}
	for _, f := range fs {
		fmt.Fprintf(w, "%-*s : %s\n", width, f.name, f.text)
	}
	return nil
}

// object is a JSON object whose members keep their order.
type object []field

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", f.name, value)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}
