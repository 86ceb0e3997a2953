package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCompletions: shells are offered the choices of flags that have some, commands to help with, files where a file is
// meant, and nothing else.
func TestCompletions(t *testing.T) {
	var format Format
	newRoot := func() *cobra.Command {
		none := func(*cobra.Command, []string) error { return nil }
		show := &cobra.Command{Use: "show", RunE: none}
		OutputFlag(show.Flags(), &format)
		show.Flags().StringP("transport", "t", "", "`TRANSPORT`: rdma or tcp")
		Offer(show.Flags(), "transport", Transports())
		show.Flags().StringSlice("compare", nil, "`PATHS`")
		Offer(show.Flags(), "compare", Transports())
		show.Flags().String("input", "", "`FILE` to read")
		show.Flags().Int("depth", 0, "`number` of them")
		show.Flags().Bool("verify", false, "check")
		root := &cobra.Command{Use: "program"}
		root.AddCommand(show, &cobra.Command{Use: "check FILE", RunE: none})
		return Parent(root)
	}
	const nothing, noSpace, anyFile = ":4", ":6", ":0" // cobra.ShellCompDirectiveNoFileComp, with …NoSpace, …Default
	for line, want := range map[string]string{
		"show -t ":              "rdma tcp " + nothing,
		"show --output-format ": "normal json " + nothing,
		"show --compare ":       "rdma tcp " + noSpace,
		"show --compare tcp,r":  "tcp,rdma tcp,tcp " + noSpace,
		"show --input ":         anyFile,
		"show --depth ":         nothing,
		"show --verify ":        nothing,
		"show ":                 nothing,
		"check ":                anyFile,
		"help ":                 "check completion show " + nothing,
		"help completion ":      "bash fish powershell zsh " + nothing,
		"help show ":            nothing,
	} {
		root := newRoot()
		var out, stderr bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...))
		if code := Execute(context.Background(), root, &stderr); code != ExitOK {
			t.Fatalf("%q: %d, %s", line, code, stderr.String())
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
}
