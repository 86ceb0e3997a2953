package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// chooser is the value of a flag that takes one of few.
type chooser interface{ Choices() []string }

// choices are the values of the other flags that take one of few.
var choices = map[string][]string{
	"transport":    {"rdma", "tcp"},
	"io":           {"auto", "uring", "direct", "buffered"},
	"iopolicy":     {"round-robin", "queue-depth"},
	"log-level":    {"debug", "info", "warn", "error"},
	"rw":           {"read", "write", "randread", "randwrite", "rw", "randrw"},
	"rate_process": {"linear", "poisson"},
	"verify":       {"crc32c"},
}

// files are what help calls the values that are names of files, and may be completed as such.
var files = []string{"FILE", "DIRECTORY", "SOCKET", "SPEC"}

// completions tells shells what the flags and arguments of c, and of the commands below it, take. Without it they
// offer files for everything.
func completions(c *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if complete := completion(f); complete != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, complete) // it fails where it was done before
			}
		})
	}
	if !c.HasSubCommands() && !strings.Contains(c.Use, "FILE") && c.ValidArgsFunction == nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range c.Commands() {
		completions(sub)
	}
}

// completion is how the values of a flag are completed; nil for files, and where there is no value.
func completion(f *pflag.Flag) cobra.CompletionFunc {
	name, _ := pflag.UnquoteUsage(f)
	v, ok := f.Value.(chooser)
	switch {
	case ok:
		return cobra.FixedCompletions(v.Choices(), cobra.ShellCompDirectiveNoFileComp)
	case f.Value.Type() == "bool" || slices.Contains(files, name):
		return nil
	case choices[f.Name] != nil:
		return cobra.FixedCompletions(choices[f.Name], cobra.ShellCompDirectiveNoFileComp)
	}
	return cobra.NoFileCompletions
}
