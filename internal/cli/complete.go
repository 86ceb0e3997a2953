package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choicesKey is the annotation that holds the choices of a flag.
const choicesKey = "nvmeof_choices"

// Offer makes shells offer choices as the values of a flag.
func Offer(flags *pflag.FlagSet, name string, choices []string) {
	_ = flags.SetAnnotation(name, choicesKey, choices) // it fails if there is no such flag
}

// files are the names that help uses for values that are file names, and may be completed as such.
var files = []string{"FILE", "DIRECTORY", "SOCKET", "SPEC"}

// completions registers what shells complete for the flags and arguments of c and of the commands below it. Without it
// they offer files for everything.
func completions(c *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if complete := completion(f); complete != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, complete) // it fails if it was done before
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

// completion returns how the values of a flag are completed, or nil for files, and if there is no value.
func completion(f *pflag.Flag) cobra.CompletionFunc {
	name, _ := pflag.UnquoteUsage(f)
	switch choices := f.Annotations[choicesKey]; {
	case choices != nil && f.Value.Type() == "stringSlice":
		return listCompletions(choices)
	case choices != nil:
		return cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)
	case f.Value.Type() == "bool" || slices.Contains(files, name):
		return nil
	}
	return cobra.NoFileCompletions
}

// listCompletions completes the last of several choices with commas between.
func listCompletions(choices []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var lists []cobra.Completion
		for _, choice := range choices {
			lists = append(lists, before+choice)
		}
		return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
