package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// field is one field of an NVMe page. A field without text is shown only in JSON, one without a value only to
// people.
type field struct {
	name  string
	text  string
	value any
}

// number is a field whose value is shown in decimal.
func number[N uint8 | uint16 | uint32 | uint64 | int | int64](name string, n N) field {
	return field{name, fmt.Sprint(n), n}
}

// hexadecimal is a field whose value is shown in hexadecimal.
func hexadecimal[N ~uint8 | ~uint16 | ~uint32 | ~uint64](name string, n N) field {
	return field{name, fmt.Sprintf("%#x", uint64(n)), uint64(n)}
}

// minNameWidth aligns the columns of most pages.
const minNameWidth = 10

// printFields shows fields as nvme-cli does: one per line, or as a JSON object.
func printFields(w io.Writer, format cli.Format, fs []field) error {
	if format == cli.JSON {
		return cli.PrintJSON(w, object(fs))
	}
	width := minNameWidth
	for _, f := range fs {
		width = max(width, len(f.name))
	}
	for _, f := range fs {
		if f.text != "" || f.value == "" { // a text may be empty
			fmt.Fprintf(w, "%-*s : %s\n", width, f.name, f.text)
		}
	}
	return nil
}

// object is a JSON object whose members keep their order.
type object []field

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for _, f := range o {
		if f.value == nil {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f.name) // may be a target's NQN
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s:%s", name, value)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}
