package clitest

import (
	"maps"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// RefusesEmptyValues fails t if a flag of any command treats an empty value, such as that of an unset shell
// variable, as none: a write would go to another subsystem than intended, and a target would let every host in. No
// flag gives an empty value a meaning. The error must say what the flag takes, rather than what a parser of Go's
// couldn't do. newRoot makes the program's commands.
func RefusesEmptyValues(t *testing.T, newRoot func() *cobra.Command) {
	t.Helper()
	for path, flags := range commandFlags(newRoot(), "", map[string]bool{}) {
		for _, name := range flags {
			ran := false
			root := newRoot()
			c, _, err := root.Find(strings.Fields(path))
			if err != nil {
				t.Fatal(err)
			}
			c.Args, c.RunE = nil, func(*cobra.Command, []string) error { ran = true; return nil }
			root.SetArgs(append(strings.Fields(path), "--"+name+"="))
			var says strings.Builder
			code := cli.Execute(t.Context(), root, &says)
			if ran || code != cli.ExitUsage || !strings.Contains(says.String(), "--"+name) || strings.Contains(says.String(), "strconv") {
				t.Errorf("%s --%s=: exit code %d, %q", path, name, code, says.String())
			}
		}
	}
}

// commandFlags returns the flags of every leaf command below c, keyed by the command's words. Flags that several
// commands share are listed with one of them: known holds what identifies them.
func commandFlags(c *cobra.Command, words string, known map[string]bool) map[string][]string {
	all := map[string][]string{}
	for _, sub := range c.Commands() {
		path := words + " " + sub.Name()
		maps.Copy(all, commandFlags(sub, path, known))
		if sub.HasSubCommands() {
			continue
		}
		sub.InheritedFlags() // adds the inherited flags to Flags
		sub.Flags().VisitAll(func(f *pflag.Flag) {
			if what := f.Name + f.Usage; !known[what] {
				known[what], all[path] = true, append(all[path], f.Name)
			}
		})
	}
	return all
}
