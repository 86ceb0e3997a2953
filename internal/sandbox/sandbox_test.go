package sandbox

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestInsideEnds: a test that hangs in a process of its own ends with the program that runs it, even if that is killed.
func TestInsideEnds(t *testing.T) {
	const at = "NVMEOF_TEST_SANDBOX_AT"
	if path := os.Getenv(at); path != "" {
		if !Inside(t) {
			return
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c) // hangs
		return
	}
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), at+"="+path)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	due := time.Now().Add(20 * time.Second)
	_ = l.SetDeadline(due)
	inside, err := l.Accept()
	_ = c.Process.Kill()
	_ = c.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	_ = inside.SetDeadline(due)
	if _, err := inside.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it outlives its parent: %v", err)
	}
}
