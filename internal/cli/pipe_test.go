package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

// TestBrokenPipe: a command whose reader goes away runs to its end, cleans up, and fails
// without a word.
func TestBrokenPipe(t *testing.T) {
	for _, returned := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cleaned := false
		root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
			defer func() { cleaned = true }()
			_, err := fmt.Fprintln(c.OutOrStdout(), "text")
			if err == nil {
				return errors.New("the write did not fail")
			}
			if returned {
				return err
			}
			return nil
		}}
		root.SetOut(w)
		root.SetArgs([]string{})
		var stderr bytes.Buffer
		code := Execute(context.Background(), root, &stderr)
		w.Close()
		if code != ExitFailure || stderr.Len() > 0 || !cleaned {
			t.Errorf("error returned %v: code %d, cleaned up %v, stderr %q", returned, code, cleaned, stderr.String())
		}
	}
}
