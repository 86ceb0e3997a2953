package persist

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// victimPath makes the test binary write to that volume until it is killed; victimFlushes makes it make each write
// durable.
const (
	victimPath    = "PERSIST_TEST_VICTIM"
	victimFlushes = "PERSIST_TEST_FLUSH"
)

const killBlocks = 64

// victim writes numbered blocks round and round, and prints which are acknowledged.
func victim(path string) {
	v, err := Open(path, blockdev.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	c, b := volumetest.NewClient(v), make([]byte, 4096)
	flush := os.Getenv(victimFlushes) != ""
	for n := uint64(1); err == nil; n++ {
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], n)
		}
		err = c.Write(b, int64(n%killBlocks)*4096, flush && n%2 == 0)
		if flush && n%2 != 0 && err == nil {
			err = c.Flush()
		}
		fmt.Println(n)
	}
	fmt.Println(err)
}

// TestKill kills a program that writes: every write that was acknowledged is there, flushed or
// not. (That the page cache outlives the program is what MAP_SHARED promises.)
func TestKill(t *testing.T) {
	for _, mode := range []string{"", modeInPlace} {
		for _, flush := range []string{"", "1"} {
			t.Run(fmt.Sprintf("mode %q, flush %q", mode, flush), func(t *testing.T) { killVictims(t, mode, flush) })
		}
	}
}

func killVictims(t *testing.T, mode, flush string) {
	t.Setenv(victimFlushes, flush)
	path := filepath.Join(t.TempDir(), "v") + mode
	v, err := Open(path, blockdev.Options{Size: killBlocks * 4096})
	if err != nil {
		t.Fatal(err)
	}
	v.Close()
	for range 3 {
		last := killed(t, path)
		v, err := Open(path, blockdev.Options{}) // the lock is gone, too
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		for n := max(last, killBlocks) - killBlocks + 1; n <= last; n++ {
			if err := volumetest.NewClient(v).Read(b, int64(n%killBlocks)*4096); err != nil {
				t.Fatal(err)
			}
			// The one after the last acknowledged may have begun to overwrite the oldest.
			if got := binary.LittleEndian.Uint64(b); got != n && n+killBlocks != last+1 {
				t.Fatalf("block %d: found %d, %d was acknowledged", n%killBlocks, got, n)
			}
		}
		v.Close()
	}
}

// killed runs a victim, kills it, and returns the last number that it acknowledged.
func killed(t *testing.T, path string) (last uint64) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimPath+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := 20 + rand.IntN(300)
	r := bufio.NewReader(out)
	for i := 0; ; i++ {
		line, err := r.ReadString('\n')
		if err != nil {
			break // everything that it said before its death was read
		}
		if last, err = strconv.ParseUint(strings.TrimSpace(line), 10, 64); err != nil {
			t.Fatalf("the program says %q", line)
		}
		if i == kill {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if last < uint64(kill) {
		t.Fatalf("it ended after %d writes", last)
	}
	return last
}
