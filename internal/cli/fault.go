package cli

import (
	"strings"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
)

// Fault is a flag of faults to inject; Config is nil where none was given.
type Fault struct{ Config *fault.Config }

// FaultSyntax is what the flag takes, indented for help.
var FaultSyntax = "  " + strings.ReplaceAll(fault.Syntax, "\n", "\n  ")

func (f *Fault) String() string {
	if f.Config == nil {
		return ""
	}
	return f.Config.String()
}

// Set reads faults.
func (f *Fault) Set(v string) error {
	c, err := fault.Parse(v)
	if err == nil {
		f.Config = &c
	}
	return err
}

// Type is how help names the value.
func (f *Fault) Type() string { return "faults" }

// UnmarshalText reads faults from a file.
func (f *Fault) UnmarshalText(b []byte) error { return f.Set(string(b)) }

// MarshalText writes them as they are read.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
