package fio

import (
	"errors"
	"fmt"
	"slices"
)

// strangers holds the unknown options of a job file. They are reported together, so that users don't have to find
// them one by one.
type strangers []stranger

type stranger struct {
	line int
	err  *UnknownOptionError
}

// add records the error of a line; it returns false if it is another kind of error.
func (s *strangers) add(line int, err error) bool {
	var unknown *UnknownOptionError
	if !errors.As(err, &unknown) {
		return false
	}
	if !slices.ContainsFunc(*s, func(o stranger) bool { return o.err.Option == unknown.Option }) {
		*s = append(*s, stranger{line, unknown})
	}
	return true
}

// maxOthers is how many further options are reported with the first: errors are one line.
const maxOthers = 5

// err returns the error of the first option, which names the others.
func (s strangers) err() error {
	first := s[0].err
	for i, o := range s[1:] {
		if i == maxOthers {
			first.Others = append(first.Others, "…")
			break
		}
		first.Others = append(first.Others, fmt.Sprintf("%s (line %d)", o.err.Option, o.line))
	}
	return first
}
