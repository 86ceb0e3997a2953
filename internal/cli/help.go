package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of help texts.
const helpWidth = 100

// groupKey is the annotation that holds the heading of a flag.
const groupKey = "nvmeof_group"

// AddFlags adds flags to c that its help shows under a heading of their own.
func AddFlags(c *cobra.Command, heading string, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { _ = flags.SetAnnotation(f.Name, groupKey, []string{heading}) })
	c.Flags().AddFlagSet(flags)
}

// usage writes the part of a command's help that follows the description.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	line := c.UseLine()
	if c.HasAvailableSubCommands() {
		line = c.CommandPath() + " COMMAND [flags]"
	}
	section(w, "Usage", "  "+line)
	section(w, "Examples", c.Example)
	section(w, "Commands", commands(c, ""))
	for _, g := range c.Groups() {
		section(w, g.Title, commands(c, g.ID))
	}
	headings, sets := flagGroups(c)
	for _, h := range headings {
		section(w, h, sets[h].FlagUsagesWrapped(helpWidth))
	}
	if !c.HasParent() {
		section(w, "Exit status", "  "+exitStatus)
		fmt.Fprintf(w, "\n%s COMMAND --help says more about a command.\n", c.CommandPath())
	}
	return nil
}

// exitStatus says what the exit codes mean.
var exitStatus = fmt.Sprintf("%d success, %d failure, %d a mistake on the command line, %d interrupted",
	ExitOK, ExitFailure, ExitUsage, ExitInterrupt)

// flagGroups returns the flags that a command takes, including those of its parents, by their headings, and the headings
// in order.
func flagGroups(c *cobra.Command) (headings []string, sets map[string]*pflag.FlagSet) {
	headings, sets = []string{"Flags"}, map[string]*pflag.FlagSet{"Flags": NewFlags()}
	add := func(f *pflag.Flag) {
		heading := "Flags"
		if g := f.Annotations[groupKey]; len(g) > 0 {
			heading = g[0]
		}
		if sets[heading] == nil {
			headings = append(headings, heading)
			sets[heading] = NewFlags()
		}
		sets[heading].AddFlag(onceDefault(f))
	}
	c.InheritedFlags().VisitAll(add)
	c.LocalFlags().VisitAll(add)
	return headings, sets
}

// onceDefault returns f without a default value to show if its text already says what the
// default is.
func onceDefault(f *pflag.Flag) *pflag.Flag {
	if !strings.Contains(f.Usage, "(default ") || f.Value.Type() != "int" {
		return f
	}
	shown := *f
	shown.DefValue = "0"
	return &shown
}

// keepOrder makes c and the commands below it show their flags in the order in which they were added.
func keepOrder(c *cobra.Command) {
	c.Flags().SortFlags = false
	c.PersistentFlags().SortFlags = false
	for _, sub := range c.Commands() {
		keepOrder(sub)
	}
}

// NewFlags returns an empty set of flags that keeps their order.
func NewFlags() *pflag.FlagSet {
	s := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.SortFlags = false
	return s
}

func section(w io.Writer, heading, text string) {
	if text = strings.TrimRight(text, "\n "); text == "" {
		return
	}
	if heading != "Usage" {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s:\n%s\n", heading, text)
}

// commands lists the commands below c that are in a group, or in none.
func commands(c *cobra.Command, group string) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.GroupID == group {
			fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	return b.String()
}

// strictHelp makes all forms of help report unknown commands, too, where cobra shows the help of the command before them.
// The error is in *wrong, since cobra's help function returns nothing.
func strictHelp(root *cobra.Command, wrong *error) {
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
