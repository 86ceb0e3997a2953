package linux

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// faults are what happens to the connections under load; the host must reconnect by itself.
var faults = []struct {
	name string
	do   func(t *testing.T, p *peer, servers []*server)
}{
	{"restart", func(t *testing.T, _ *peer, servers []*server) {
		for _, s := range servers {
			s.kill()
		}
		time.Sleep(2 * time.Second)
		for _, s := range servers {
			s.start(t)
		}
	}},
	{"cut", func(t *testing.T, p *peer, _ []*server) { p.unplugged(t, keepAlive+3*time.Second) }},
	{"brief-cut", func(t *testing.T, p *peer, _ []*server) { p.unplugged(t, time.Second) }},
	{"freeze", func(_ *testing.T, p *peer, _ []*server) {
		p.Freeze()
		time.Sleep(keepAlive + 3*time.Second)
		p.Thaw()
	}},
}

// ignoreSIGPIPE precedes programs that write to a device while its connections break. Linux's nvme-tcp sends from the
// thread that submits, without MSG_NOSIGNAL: a thread that does so just after the target has closed the connection gets
// a SIGPIPE, although the request is requeued and done later ("failed to send request -32").
const ignoreSIGPIPE = "trap '' PIPE; "

// keepAlive is the keep alive timeout of connections that break; a cut or a freeze outlasts
// it, a brief cut doesn't.
const keepAlive = 5 * time.Second

// unplugged pulls the machine's network cable for a while.
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

// testFaults: fio writes and verifies while the connections of both transports, each to a target of its own, break; it
// succeeds.
func testFaults(t *testing.T, p *peer) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			var servers []*server
			devs := map[string]string{}
			for _, transport := range transports {
				s := serveOn(t, []string{transport}, testNQN+"."+transport,
					"--volume", filepath.Join(t.TempDir(), "volume"), "--size", "64MiB")
				servers = append(servers, s)
				devs[transport] = p.connectTo(t, transport, hostAddr, s.nqn, "--reconnect-delay=1", "--ctrl-loss-tmo=60", "-k", "5")
			}
			results := map[string]chan error{}
			for transport, dev := range devs {
				results[transport] = make(chan error, 1)
				go func() {
					out := "/tmp/fio." + transport
					_, err := p.try(t, ignoreSIGPIPE+"fio --name=fault --filename="+dev+" --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite "+
						"--bsrange=4k-64k --size=8m --rate=1m --verify=crc32c --verify_fatal=1 --output="+out+" || { cat "+out+" >&2; exit 1; }")
					results[transport] <- err
				}()
			}
			p.must(t, "for i in $(seq 100); do [ $(pidof fio | wc -w) -ge 2 ] && exit 0; sleep 0.1; done; exit 1")
			time.Sleep(2 * time.Second) // let it get going
			f.do(t, p, servers)
			for _, transport := range transports {
				err := <-results[transport]
				t.Run(transport, func(t *testing.T) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			log := p.must(t, "dmesg")
			if strings.Contains(log, "I/O error") || strings.Contains(log, "identifiers changed") || t.Failed() {
				t.Errorf("the kernel says:\n%s", log)
			}
			for _, s := range servers {
				p.want(t, "nvme disconnect -n "+s.nqn, "disconnected 1")
			}
			p.must(t, "dmesg -C")
		})
	}
}
