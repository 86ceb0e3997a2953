package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// ErrInvalid matches every error of this package, with errors.Is.
var ErrInvalid = errors.New("invalid configuration")

var errDuration = errors.New("want a time, as 500ms, 10s or 1m")

// FieldError says what is wrong with one value. It matches ErrInvalid.
type FieldError struct {
	File  string // empty if it isn't from a file
	Line  int    // from 1; 0 if unknown
	Field string // such as "subsystems[0].namespaces[1].size"; empty for the configuration as a whole
	Value string // as written in the file; may be empty
	Err   error
}

func (e *FieldError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field)
		if e.Value != "" {
			b.WriteString(" " + nvme.Shown(e.Value))
		}
		b.WriteString(": ")
	}
	b.WriteString(nvme.Shown(e.Err.Error())) // which, as the value, may be of somebody else's file
	return b.String()
}

func (e *FieldError) Unwrap() []error { return []error{e.Err, ErrInvalid} }

// field makes a FieldError; value may be "".
func field(name, value, format string, a ...any) *FieldError {
	return &FieldError{Field: name, Value: value, Err: fmt.Errorf(format, a...)}
}
