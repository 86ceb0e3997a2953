package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelpFlags: the help and the manual page of a command show the flags that it takes from its parent too, and all
// flags in the order in which they were added.
func TestHelpFlags(t *testing.T) {
	for _, args := range []string{"ctl show --help", "help ctl show", "man"} {
		root, ctl, show := &cobra.Command{Use: "program"}, &cobra.Command{Use: "ctl"}, &cobra.Command{Use: "show", Run: func(*cobra.Command, []string) {}}
		ctl.PersistentFlags().String("socket", "/run/socket", "`SOCKET` of the target")
		show.Flags().String("size", "", "a size")
		show.Flags().String("block", "", "a block")
		ctl.AddCommand(show)
		root.AddCommand(Parent(ctl))
		code, out, stderr := run(t.Context(), Parent(root), strings.Fields(args)...)
		if code != ExitOK {
			t.Fatalf("%s: exit code %d, %s", args, code, stderr)
		}
		out = strings.ReplaceAll(out, `\-`, "-")
		if args == "man" {
			_, out, _ = strings.Cut(out, "ctl show")
		}
		at := -1
		for _, flag := range []string{"--socket SOCKET", "--size", "--block"} {
			next := strings.Index(out, flag)
			if next <= at {
				t.Errorf("%s: %s is missing or in another place:\n%s", args, flag, out)
			}
			at = next
		}
	}
}
