package fio

import (
	"errors"
	"fmt"
	"slices"
)

// strangers are the options of a job file that there are none of. They are told of together, so that nobody has to find
// them one by one.
type strangers []stranger

type stranger struct {
	line int
	err  *UnknownOptionError
}

// add takes the error of a line; false where it is another kind of error.
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

// maxOthers is how many are told of beside the first: errors are one line.
const maxOthers = 5

// err is that of the first, which names the others.
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
