package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestCopies counts the bytes copied for an I/O over RDMA: once by each kernel, once in user space where they are
// received, and nowhere else.
func TestCopies(t *testing.T) {
	runtime.LockOSThread() // the programs end with it
	p := &plan{bin: t.TempDir()}
	build := exec.Command("go", "build", "-o", p.bin+string(filepath.Separator), "../../cmd/nvmetgt", "../../cmd/nvmeinit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	target, err := p.startTarget("--volume", "mem:16MiB")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Stop()
	byKernel, again := counted[4], counted[5]
	for _, c := range []struct {
		load               string
		receiver, sender   func(sample) figures
		data, capsuleBytes float64
	}{
		{"randread 4k 32", sample.ofHost, sample.ofTarget, 4 << 10, 200},
		{"randwrite 4k 32", sample.ofTarget, sample.ofHost, 4 << 10, 200},
		{"read 128k 8", sample.ofHost, sample.ofTarget, 128 << 10, 2000},
		{"write 128k 8", sample.ofTarget, sample.ofHost, 128 << 10, 2000},
	} {
		s := countLoad(t, p, target, c.load, loadBytes/int(c.data))
		// A busy machine has packets retransmitted: each time at most all the data of an I/O, if it is a READ request.
		const sentAgain = "nvmeof_rnic_retransmitted_pkts_total"
		tolerance := 0.03*c.data + c.capsuleBytes + (s.host[sentAgain]+s.target[sentAgain])*c.data
		for _, w := range []struct {
			what      string
			got, want float64
		}{
			{"by the kernel of who receives", byKernel.of(c.receiver(s)), c.data},
			{"by the kernel of who sends", byKernel.of(c.sender(s)), c.data},
			{"again, by who receives", again.of(c.receiver(s)), c.data},
			{"again, by who sends", again.of(c.sender(s)), 0},
		} {
			if math.Abs(w.got-w.want) > tolerance {
				t.Errorf("%s: %.0f bytes are copied %s, want about %.0f", c.load, w.got, w.what, w.want)
			}
		}
	}
}

// quiet is a job that follows one that ends, so that both sides can be queried while next to nothing happens.
const quiet = `
[quiet]
stonewall
rw=read
bs=4k
rate_iops=1
time_based
runtime=1h
`

// loadBytes is how much a load moves, many times the volume.
const loadBytes = 128 << 20

// countLoad is the cost of a load, which consists of the given number of I/Os.
func countLoad(t *testing.T, p *plan, target *program, load string, ios int) (s sample) {
	t.Helper()
	jobs := filepath.Join(t.TempDir(), "jobs.fio")
	f := strings.Fields(load)
	text := fmt.Sprintf("[load]\nrw=%s\nbs=%s\niodepth=%s\nio_size=%d\n", f[0], f[1], f[2], loadBytes) + quiet
	if err := os.WriteFile(jobs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := target.figures()
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.start(target.addr, hostPort, "nvmeinit", "bench", "-t", "rdma", "-a", target.addr, "-n", nqn, "-i", "1", "-Q", "256", jobs)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Stop()
	var after [2]figures
	commands := before[commandsName]
	if !soon.Until(func() bool {
		last := commands
		after, err = both(h, target)
		commands = after[1][commandsName]
		return err != nil || commands >= before[commandsName]+float64(ios) && commands <= last+1
	}) || err != nil {
		t.Fatalf("%s: %v of %d commands, %v", load, commands-before[commandsName], ios, err)
	}
	s.host, s.target = after[0], after[1].since(before)
	s.host.divide(float64(ios))
	s.target.divide(float64(ios))
	return s
}

func (s sample) ofHost() figures   { return s.host }
func (s sample) ofTarget() figures { return s.target }
