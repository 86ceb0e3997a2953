package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choicesKey is the annotation that holds the values of a flag that takes one of few.
const choicesKey = "nvmeof_choices"

// Offer has shells offer the values of a flag that takes one of few.
func Offer(flags *pflag.FlagSet, name string, choices []string) {
	_ = flags.SetAnnotation(name, choicesKey, choices) // it fails where there is no such flag
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
	switch choices := f.Annotations[choicesKey]; {
	case choices != nil:
		return cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
	case f.Value.Type() == "bool" || slices.Contains(files, name):
		return nil
	}
	return cobra.NoFileCompletions
}
