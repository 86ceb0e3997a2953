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

// AddFlags gives c flags that its help shows under a heading of their own.
func AddFlags(c *cobra.Command, heading string, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { _ = flags.SetAnnotation(f.Name, groupKey, []string{heading}) })
	c.Flags().SortFlags = false
	c.Flags().AddFlagSet(flags)
}

// usage writes what follows the description in a command's help.
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

// flagGroups are the flags of a command by their headings, which are in order.
func flagGroups(c *cobra.Command) (headings []string, sets map[string]*pflag.FlagSet) {
	headings, sets = []string{"Flags"}, map[string]*pflag.FlagSet{"Flags": NewFlags()}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		heading := "Flags"
		if g := f.Annotations[groupKey]; len(g) > 0 {
			heading = g[0]
		}
		if sets[heading] == nil {
			headings = append(headings, heading)
			sets[heading] = NewFlags()
		}
		sets[heading].AddFlag(onceDefault(f))
	})
	return headings, sets
}

// onceDefault is f without a value of its own where its text says what the default means.
func onceDefault(f *pflag.Flag) *pflag.Flag {
	if !strings.Contains(f.Usage, "(default ") || f.Value.Type() != "int" {
		return f
	}
	shown := *f
	shown.DefValue = "0"
	return &shown
}

// NewFlags is an empty set of flags that keeps their order.
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

// commands are those below c that are of a group, or of none.
func commands(c *cobra.Command, group string) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.GroupID == group {
			fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
	return b.String()
}
