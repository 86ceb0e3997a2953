package clitest

import (
	"maps"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// RefusesEmptyValues fails t where a flag of any command takes an empty value, as of a shell variable that isn't set, for
// none: a write would go to another subsystem than the one that is meant, and a target would let every host in. There is
// no flag for which empty means something. newRoot makes the program's commands.
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
			if code := cli.Execute(t.Context(), root, &says); ran || code != cli.ExitUsage || !strings.Contains(says.String(), "--"+name) {
				t.Errorf("%s --%s=: exit code %d, %q", path, name, code, says.String())
			}
		}
	}
}

// commandFlags are the flags of every command below c that does something by itself, by its words. Those that several
// commands share are with one of them: known has what tells them apart.
func commandFlags(c *cobra.Command, words string, known map[string]bool) map[string][]string {
	all := map[string][]string{}
	for _, sub := range c.Commands() {
		path := words + " " + sub.Name()
		maps.Copy(all, commandFlags(sub, path, known))
		if sub.HasSubCommands() {
			continue
		}
		sub.InheritedFlags() // which enters them
		sub.Flags().VisitAll(func(f *pflag.Flag) {
			if what := f.Name + f.Usage; !known[what] {
				known[what], all[path] = true, append(all[path], f.Name)
			}
		})
	}
	return all
}
