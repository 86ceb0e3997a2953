package tcp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestSystemShortOfMemory: a command for whose data the system has no memory waits, though no other command holds any
// that it could give back. The log says so, and the command is answered once the system has memory again.
func TestSystemShortOfMemory(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	p.connect()
	p.enable()
	restore := limitMemory(t, 1<<20)
	p.send(p.capsule(identify(2), nil))
	err, said := soon.Receive(tt.errs)
	time.Sleep(1500 * time.Millisecond) // memory that is freed is saved for the command for a second
	restore()
	if !said || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("the log says %v", err)
	}
	p.expect(pdu.TypeC2HData)
	if cqe := p.response(); !cqe.Status().OK() {
		t.Errorf("status %v", cqe.Status())
	}
}

// limitMemory limits the program's address space to its present size plus the given number of bytes.
func limitMemory(t *testing.T, more uint64) (restore func()) {
	t.Helper()
	runtime.KeepAlive(make([]byte, 4<<20)) // room in Go's heap, which can't grow either
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = pages*uint64(os.Getpagesize()) + more
	if now.Cur > was.Max {
		t.Skip("less memory is allowed")
	}
	collect := debug.SetGCPercent(-1) // which may need memory, too
	if err := unix.Setrlimit(unix.RLIMIT_AS, &now); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_AS, &was); err != nil {
			t.Fatal(err)
		}
		debug.SetGCPercent(collect)
	}
}
