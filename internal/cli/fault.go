package cli

import (
	"strings"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
)

// Fault is a flag for faults to inject; Config is nil if none are given.
type Fault struct{ Config *fault.Config }

// FaultSyntax describes the flag's value, indented for help.
var FaultSyntax = "  " + strings.ReplaceAll(fault.Syntax, "\n", "\n  ")

func (f *Fault) String() string {
	if f.Config == nil {
		return ""
	}
	return f.Config.String()
}

// Set parses faults.
func (f *Fault) Set(v string) error {
	c, err := fault.Parse(v)
	if err == nil {
		f.Config = &c
	}
	return err
}

// Type is the name of the value in help.
func (f *Fault) Type() string { return "faults" }

// UnmarshalText parses faults from a file.
func (f *Fault) UnmarshalText(b []byte) error { return f.Set(string(b)) }

// MarshalText formats the faults so that UnmarshalText can parse them.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
