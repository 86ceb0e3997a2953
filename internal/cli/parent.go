package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Parent makes c a command that only has subcommands: by itself it shows its help, and an unknown subcommand is an
// error.
func Parent(c *cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(c, args[0])
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// Absent has c, which has other commands, say what to do instead if one of these names is used for one.
func Absent(c *cobra.Command, instead map[string]string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{} // in which cobra keeps something, too
	}
	maps.Copy(c.Annotations, instead)
}

// manyCommands is how many are too many for one line.
const manyCommands = 20

// unknownCommand says which command of c is probably meant, or which there are, if any.
func unknownCommand(c *cobra.Command, name string) error {
	if !c.HasSubCommands() { // as in "help COMMAND more"
		return Usage("%s has no commands, and so no %q; see %s --help", c.CommandPath(), name, c.CommandPath())
	}
	if instead := c.Annotations[name]; instead != "" {
		return Usage("there is no command %q: %s", name, instead)
	}
	var names []string
	for _, sub := range c.Commands() {
		if slices.Contains(sub.SuggestFor, name) {
			return Usage("there is no command %q; is %s meant? see %s %[2]s --help", name, sub.Name(), c.CommandPath())
		}
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if c.Flags().Lookup(name) != nil { // as for version
		return Usage("there is no command %q; is --%[1]s meant? see %s --help", name, c.CommandPath())
	}
	if meant := similar(name, names); meant != "" {
		return Usage("there is no command %q; is %s meant? see %s --help", name, meant, c.CommandPath())
	}
	if len(names) > manyCommands {
		return Usage("there is no command %q; %s --help lists those that there are", name, c.CommandPath())
	}
	return Usage("there is no command %q among %s; see %s --help", name, strings.Join(names, ", "), c.CommandPath())
}
