package linux

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// faults are what happens to a connection under load, and takes as long as it takes; the host
// must reconnect by itself.
var faults = []struct {
	name string
	do   func(t *testing.T, p *peer, s *server, args []string)
}{
	{"restart", func(t *testing.T, _ *peer, s *server, args []string) {
		s.kill()
		time.Sleep(2 * time.Second)
		serve(t, args...)
	}},
	{"cut", func(t *testing.T, p *peer, _ *server, _ []string) { // longer than the keep alive timeout
		p.unplugged(t, 8*time.Second)
	}},
	{"brief-cut", func(t *testing.T, p *peer, _ *server, _ []string) {
		p.unplugged(t, time.Second)
	}},
	{"freeze", func(t *testing.T, p *peer, _ *server, _ []string) {
		p.Freeze()
		time.Sleep(8 * time.Second)
		p.Thaw()
	}},
}

// unplugged pulls the machine's cable for a while.
func (p *peer) unplugged(t testing.TB, d time.Duration) {
	t.Helper()
	if err := p.Plug(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	if err := p.Plug(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

// testFaults: fio writes and verifies while the connection breaks, and ends well.
func testFaults(t *testing.T, p *peer, transport string) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			args := []string{"--volume", filepath.Join(t.TempDir(), "volume"), "--size", "64MiB"}
			s := serve(t, args...)
			dev := p.connect(t, transport, "--reconnect-delay=1", "--ctrl-loss-tmo=60")
			done := make(chan error, 1)
			go func() {
				_, err := p.try(t, "fio --name=fault --filename="+dev+" --direct=1 --ioengine=libaio --iodepth=16 "+
					"--rw=randwrite --bsrange=4k-64k --size=16m --rate=1m --verify=crc32c --verify_fatal=1 --output=/tmp/fio "+
					"|| { cat /tmp/fio >&2; exit 1; }")
				done <- err
			}()
			time.Sleep(3 * time.Second) // let it get going
			f.do(t, p, s, args)
			if err := <-done; err != nil {
				t.Errorf("%v\n%s", err, p.must(t, "dmesg"))
			}
			if out := p.must(t, "dmesg"); strings.Contains(out, "I/O error") || strings.Contains(out, "identifiers changed") {
				t.Errorf("the kernel says:\n%s", out)
			}
			p.want(t, "nvme disconnect -n "+testNQN, "disconnected 1")
			p.must(t, "dmesg -C")
		})
	}
}
