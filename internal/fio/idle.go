package fio

import (
	"fmt"
	"slices"
	"strings"
)

// idle are the options that most job files have for the sake of files and of the kernel's interfaces, and that change
// nothing here: commands go to one namespace, past every cache.
var idle = []string{"ioengine", "filename", "direct", "thread", "invalidate"}

// Idle is an option of a job file that changes nothing.
type Idle struct {
	Line          int
	Option, Value string
}

// Notice says which options of the file change nothing; empty where all do.
func (f *File) Notice() string {
	if len(f.Idle) == 0 {
		return ""
	}
	var names []string
	for _, i := range f.Idle {
		if !slices.Contains(names, i.Option) {
			names = append(names, i.Option)
		}
	}
	return "without effect here: " + strings.Join(names, ", ")
}

// takeIdle takes an option that changes nothing; false where it is none of them, or would change something.
func (f *File) takeIdle(line int, option, value string) (bool, error) {
	if !slices.Contains(idle, option) || option == "direct" && value != "" && value != "1" {
		return false, nil
	}
	for _, i := range f.Idle {
		if option == "filename" && i.Option == option && i.Value != value {
			return false, fmt.Errorf("filename=%s, and %s in line %d: all jobs run on one namespace, that of --nsid", value, i.Value, i.Line)
		}
	}
	f.Idle = append(f.Idle, Idle{line, option, value})
	return true, nil
}
