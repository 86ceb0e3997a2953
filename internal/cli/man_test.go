package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The page has what --help says: texts, indented lines as they are, and flags under their headings.
func TestMan(t *testing.T) {
	root := Parent(&cobra.Command{Use: "prog", Short: "Do things", Long: "prog does things.\n\nAs these:\n\n  one -x\n\n  .two\n\nAnd more.", Version: "1.0-a"})
	serve := &cobra.Command{Use: "serve FILE", Short: "Serve it", Example: `  prog serve C:\x`, Run: func(*cobra.Command, []string) {}}
	fl := NewFlags()
	fl.Int("depth", 7, "number of `entries`")
	AddFlags(serve, "Limits", fl)
	check := &cobra.Command{Use: "check", Short: "Check it", Run: func(*cobra.Command, []string) {}}
	AddFlags(check, "Limits", fl)
	root.AddCommand(serve, check, &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}})
	var b bytes.Buffer
	writeMan(&b, root)
	got := b.String()
	for _, want := range []string{
		".TH PROG 1 \"\" \"prog 1.0\\-a\"", "prog \\- Do things\n",
		"prog does things.\n.PP\nAs these:\n.PP\n.EX\n  one \\-x\n\n  .two\n.EE\n.PP\nAnd more.\n",
		".SS prog check", ".B Limits:\n.PP\n.EX\n", "\\-\\-depth entries   number of entries (default 7)",
		".SS prog serve FILE", "Serve it.\n", ".B Limits:\nthose of prog check.\n", `C:\ex`,
		".SH EXIT STATUS",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "secret") {
		t.Error("a hidden command is there")
	}
	if s := roff(".x"); s != `\&.x` {
		t.Errorf("a line that begins with a dot: %q", s)
	}
}
