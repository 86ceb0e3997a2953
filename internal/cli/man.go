package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newMan returns the command that writes a program's manual page, for packages. The page has what --help prints, for
// all commands.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man", Short: "Write the manual page, as man(7) reads it", Hidden: true, Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			writeMan(c.OutOrStdout(), c.Root())
			return nil
		},
	}
}

func writeMan(w io.Writer, root *cobra.Command) {
	name := root.Name()
	fmt.Fprintf(w, ".TH %s 1 \"\" \"%s %s\" \"User Commands\"\n", strings.ToUpper(name), name, roff(root.Version))
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n", name, roff(root.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n.I COMMAND\n.RI [ flags ]\n", name)
	fmt.Fprint(w, ".SH DESCRIPTION\n")
	manText(w, root.Long)
	manBlock(w, "Examples", root.Example)
	fmt.Fprint(w, ".SH COMMANDS\n")
	said := map[string]string{}
	for _, c := range root.Commands() {
		manCommand(w, c, said)
	}
	fmt.Fprintf(w, ".SH EXIT STATUS\n%s\n", roff(exitStatus))
}

// manCommand writes a command, or those under it. said maps the text of each group of flags already written to the
// command that it was written for.
func manCommand(w io.Writer, c *cobra.Command, said map[string]string) {
	if !c.IsAvailableCommand() || c.Name() == "completion" || c.Name() == "help" {
		return
	}
	fmt.Fprintf(w, ".SS %s\n", roff(c.UseLine()))
	manText(w, cmp.Or(c.Long, c.Short+"."))
	headings, sets := flagGroups(c)
	for _, h := range headings {
		text := sets[h].FlagUsagesWrapped(helpWidth)
		if of := said[text]; of != "" && sets[h].HasFlags() {
			fmt.Fprintf(w, ".PP\n.B %s:\nthose of %s.\n", h, roff(of))
			continue
		}
		said[text] = c.CommandPath()
		manBlock(w, h, text)
	}
	manBlock(w, "Examples", c.Example)
	for _, sub := range c.Commands() {
		manCommand(w, sub, said)
	}
}

// manText writes text in paragraphs. Indented lines are kept as they are.
func manText(w io.Writer, text string) {
	verbatim, fresh := false, false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line == "" {
			fresh = true
			continue
		}
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented != verbatim && indented:
			fmt.Fprint(w, ".PP\n.EX\n")
		case indented != verbatim:
			fmt.Fprint(w, ".EE\n.PP\n")
		case fresh && verbatim:
			fmt.Fprint(w, "\n")
		case fresh:
			fmt.Fprint(w, ".PP\n")
		}
		verbatim, fresh = indented, false
		fmt.Fprintln(w, roff(line))
	}
	if verbatim {
		fmt.Fprint(w, ".EE\n")
	}
}

// manBlock writes a heading and text that is kept as it is.
func manBlock(w io.Writer, heading, text string) {
	text = strings.Trim(text, "\n")
	if text == "" {
		return
	}
	fmt.Fprintf(w, ".PP\n.B %s:\n.PP\n.EX\n", heading)
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(w, roff(line))
	}
	fmt.Fprint(w, ".EE\n")
}

// roff escapes text so that roff shows it as it is.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
