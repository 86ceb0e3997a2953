package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
)

// TestBrokenPipe: a command whose reader goes away runs to its end, cleans up, and fails without a message.
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

// stalled accepts nothing until it is closed.
type stalled chan struct{}

func (s stalled) Write([]byte) (int, error) {
	<-s
	return 0, io.ErrClosedPipe
}

// TestStalledPipe: a program that is interrupted doesn't wait for a reader that no longer reads, and one that reads in
// time gets everything.
func TestStalledPipe(t *testing.T) {
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
				interrupt()
				fmt.Fprintln(c.OutOrStdout(), "a first line")
				fmt.Fprintln(c.OutOrStdout(), "and a second")
				return ctx.Err()
			}}
			block := make(stalled)
			defer close(block)
			var read, stderr bytes.Buffer
			if root.SetOut(block); reads {
				root.SetOut(&read)
			}
			root.SetArgs([]string{})
			began := time.Now()
			code := Execute(ctx, root, &stderr)
			if took := time.Since(began); code != ExitInterrupt || took > lastWords || stderr.String() != "program: interrupted\n" {
				t.Errorf("code %d after %v, stderr %q", code, took, stderr.String())
			}
			if reads && read.String() != "a first line\nand a second\n" {
				t.Errorf("%q was read", read.String())
			}
		})
	}
}
