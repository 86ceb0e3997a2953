package metrics

import (
	"strconv"
	"strings"
	"sync"
)

// exposition writes families in Prometheus' text format, for metrics with as many series as
// there are hosts: the library takes ten times as long to make them.
type exposition struct{ b []byte }

// expositions are reused: their buffers already have the size of what is written.
var expositions = sync.Pool{New: func() any { return new(exposition) }}

// Write adds what the library writes.
func (e *exposition) Write(b []byte) (int, error) {
	e.b = append(e.b, b...)
	return len(b), nil
}

// labels are the names and values of a sample, formatted as name="value".
type labels []byte

// label formats labels from names and as many values.
func label(names, values []string) labels {
	size := 0
	for i := range names {
		size += len(names[i]) + len(values[i]) + 4
	}
	l := make(labels, 0, size)
	for i, name := range names {
		if i > 0 {
			l = append(l, ',')
		}
		l = append(l, name...)
		l = append(l, '=', '"')
		l = append(l, escape.Replace(values[i])...)
		l = append(l, '"')
	}
	return l
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// family begins a family; its samples follow.
func (e *exposition) family(name, kind, help string) {
	e.b = append(append(append(append(e.b, "# HELP nvmeof_"...), name...), ' '), help...)
	e.b = append(append(append(append(e.b, "\n# TYPE nvmeof_"...), name...), ' '), kind...)
	e.b = append(e.b, '\n')
}

// begin writes a sample up to its value; more is a label after those of l, or empty.
func (e *exposition) begin(name string, l labels, more string) {
	e.b = append(append(append(append(e.b, "nvmeof_"...), name...), '{'), l...)
	e.b = append(append(e.b, more...), '}', ' ')
}

// count writes a sample with an integer value.
func (e *exposition) count(name string, l labels, more string, v uint64) {
	e.begin(name, l, more)
	e.b = append(strconv.AppendUint(e.b, v, 10), '\n')
}

// seconds writes a sample in seconds from nanoseconds.
func (e *exposition) seconds(name string, l labels, more string, nanos uint64) {
	e.begin(name, l, more)
	e.b = append(strconv.AppendFloat(e.b, seconds(nanos), 'g', -1, 64), '\n')
}
