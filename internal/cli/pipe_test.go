package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dustin/go-humanize/english"
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

// TestBrokenPipeOfCompletion: so does the command that prints the script for a shell.
func TestBrokenPipeOfCompletion(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	root := &cobra.Command{Use: "program"}
	root.AddCommand(&cobra.Command{Use: "work", Run: func(*cobra.Command, []string) {}})
	root.SetOut(w)
	root.SetArgs([]string{"completion", "bash"})
	var stderr bytes.Buffer
	if code := Execute(t.Context(), root, &stderr); code != ExitFailure || stderr.Len() > 0 {
		t.Errorf("code %d, stderr %q", code, stderr.String())
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

// TestStalledMessages: nobody who writes messages waits for a reader that has stopped, for longer than it takes to
// notice; when it reads again it gets them in order, and a program that wasn't interrupted doesn't end before.
func TestStalledMessages(t *testing.T) {
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			r, w := io.Pipe()
			defer r.Close()
			began := time.Now()
			var taken []string
			root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
				for i := range 3 * mostMessages {
					line := fmt.Sprintln("message", i)
					if _, err := fmt.Fprint(c.ErrOrStderr(), line); err == nil {
						taken = append(taken, line)
					}
				}
				if took := time.Since(began); took > patience {
					t.Errorf("the command waited for %v", took)
				}
				time.Sleep(time.Hour - time.Since(began))
				if !reads {
					interrupt()
				}
				return ctx.Err()
			}}
			root.SetArgs([]string{})
			read := make(chan []byte, 1)
			if reads {
				time.AfterFunc(2*time.Hour, func() {
					all, _ := io.ReadAll(r)
					read <- all
				})
			}
			Execute(ctx, root, w)
			switch took := time.Since(began); {
			case !reads && took > time.Hour+lastWords:
				t.Errorf("the interrupted program ended after %v", took)
			case reads && took < 2*time.Hour:
				t.Errorf("the program ended after %v, before its messages were read", took)
			}
			if n := len(taken); n < mostMessages || n > 2*mostMessages {
				t.Errorf("%d messages were kept", n)
			}
			w.Close()
			if reads {
				got, _, _ := strings.Cut(string(<-read), "program: ") // which says how many were lost
				if want := strings.Join(taken, ""); got != want {
					t.Errorf("%d bytes were read, want %d", len(got), len(want))
				}
			}
		})
	}
}

// slowWriter takes its time for what is written to it.
type slowWriter struct {
	takes   atomic.Int64 // nanoseconds
	written atomic.Int64 // messages
}

func (w *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(w.takes.Load()))
	w.written.Add(1)
	return len(b), nil
}

// TestSlowMessages: a reader that is slow all the time holds up one message. When it no longer is, messages are written
// in their place again.
func TestSlowMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(slowWriter)
		w.takes.Store(int64(2 * patience))
		root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
			var waited time.Duration
			say := func() {
				began := time.Now()
				fmt.Fprintln(c.ErrOrStderr(), "message")
				waited += time.Since(began)
			}
			const slow = 10
			for range slow {
				say()
				time.Sleep(time.Second) // which it has caught up after
			}
			if waited != patience || w.written.Load() != slow {
				t.Errorf("%d messages were written, and waited for %v", w.written.Load(), waited)
			}
			w.takes.Store(int64(patience / 2))
			say()
			time.Sleep(time.Second)
			if say(); w.written.Load() != slow+2 {
				t.Error("a message isn't written in its place")
			}
			return nil
		}}
		root.SetArgs([]string{})
		if code := Execute(t.Context(), root, w); code != ExitOK {
			t.Errorf("code %d", code)
		}
	})
}

// TestProgressNotRead: progress that isn't read takes no room from the messages that follow it, and is shown again when
// its reader goes on.
func TestProgressNotRead(t *testing.T) {
	for _, message := range []string{"message\n", ""} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			read := make(chan string, 1)
			root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
				progress := Transient(c.ErrOrStderr())
				for range 3 * mostMessages {
					fmt.Fprintln(progress, "progress")
				}
				if message != "" {
					fmt.Fprint(c.ErrOrStderr(), message)
				}
				go func() {
					all, _ := io.ReadAll(r)
					read <- string(all)
				}()
				synctest.Wait()
				fmt.Fprintln(progress, "progress")
				return nil
			}}
			root.SetArgs([]string{})
			if code := Execute(t.Context(), root, w); code != ExitOK {
				t.Errorf("code %d", code)
			}
			w.Close()
			if all, want := <-read, "progress\n"+message+"progress\n"; all != want {
				t.Errorf("%d bytes were read, want %q", len(all), want)
			}
		})
	}
}

// TestErrorAfterStalledMessages: the error that a program ends with is read even if messages before it were lost, and so
// is how many those were.
func TestErrorAfterStalledMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		dropped := 0
		root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
			for range 3 * mostMessages {
				if _, err := fmt.Fprintln(c.ErrOrStderr(), "message"); err != nil {
					dropped++
				}
			}
			return errors.New("the work failed")
		}}
		root.SetArgs([]string{})
		read := make(chan string, 1)
		time.AfterFunc(time.Hour, func() {
			all, _ := io.ReadAll(r)
			read <- string(all)
		})
		if code := Execute(t.Context(), root, w); code != ExitFailure {
			t.Errorf("code %d", code)
		}
		w.Close()
		all := <-read
		lost := "program: " + english.Plural(dropped, "message", "") + " lost, because nobody read standard error in time\n"
		if kept := 3*mostMessages - dropped; dropped == 0 || strings.Count(all, "message\n") != kept {
			t.Errorf("%d messages were dropped, %d read", dropped, strings.Count(all, "message\n"))
		}
		if !strings.HasSuffix(all, "message\n"+lost+"program: the work failed\n") {
			t.Errorf("%d bytes were read; they end with %q", len(all), all[max(0, len(all)-200):])
		}
	})
}

// TestLibrariesSay: what libraries log takes the same way to standard error as the program's own messages, whoever reads
// those.
func TestLibrariesSay(t *testing.T) {
	before := log.Writer()
	var stderr bytes.Buffer
	root := &cobra.Command{Use: "program", RunE: func(*cobra.Command, []string) error {
		log.Print("out of descriptors")
		return nil
	}}
	root.SetArgs([]string{})
	if Execute(t.Context(), root, &stderr); !strings.HasSuffix(stderr.String(), "out of descriptors\n") {
		t.Errorf("standard error is %q", stderr.String())
	}
	if log.Writer() != before {
		t.Error("what libraries log after the command is lost")
	}
}

// TestMessagesInPlace: while they are read, each message is written before what follows it.
func TestMessagesInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in virtual time no message is late
		var both bytes.Buffer
		root := &cobra.Command{Use: "program", RunE: func(c *cobra.Command, _ []string) error {
			for range 100 {
				fmt.Fprintln(c.ErrOrStderr(), "message")
				fmt.Fprintln(c.OutOrStdout(), "output")
			}
			return nil
		}}
		root.SetOut(&both)
		root.SetArgs([]string{})
		if code := Execute(t.Context(), root, &both); code != ExitOK || both.String() != strings.Repeat("message\noutput\n", 100) {
			t.Errorf("code %d, output:\n%s", code, both.String())
		}
	})
}
