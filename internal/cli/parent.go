package cli

import (
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

// manyCommands is how many are too many for one line.
const manyCommands = 20

// unknownCommand says which command of c is probably meant, or which there are, if any.
func unknownCommand(c *cobra.Command, name string) error {
	if !c.HasSubCommands() { // as in "help COMMAND more"
		return Usage("%s has no commands, and so no %q; see %s --help", c.CommandPath(), name, c.CommandPath())
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if meant := similar(name, names); meant != "" {
		return Usage("there is no command %q; is %s meant? see %s --help", name, meant, c.CommandPath())
	}
	if len(names) > manyCommands {
		return Usage("there is no command %q; %s --help lists those that there are", name, c.CommandPath())
	}
	return Usage("there is no command %q among %s; see %s --help", name, strings.Join(names, ", "), c.CommandPath())
}

// helpers makes all forms of help report unknown commands, too, where cobra shows the help of the command before them.
// The error is in *wrong, since cobra's help function returns nothing.
func helpers(root *cobra.Command, wrong *error) {
	root.SetHelpCommand(newHelp())
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			Parent(c)
		}
	}
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.HasSubCommands() {
			*wrong = c.ValidateArgs(c.Flags().Args())
		}
		if *wrong == nil {
			show(c, args)
		}
	})
}

// newHelp returns the command "help COMMAND".
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Show the help of a command",
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknownCommand(of, rest[0])
			}
			of.InitDefaultHelpFlag()
			of.InitDefaultVersionFlag()
			return of.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			if of, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range of.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
