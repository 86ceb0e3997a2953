package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestCopies counts the bytes that an I/O over RDMA has copied: by each kernel once, and in user
// space once where they are received, and nowhere else.
func TestCopies(t *testing.T) {
	runtime.LockOSThread() // the programs end with it
	p := &plan{bin: t.TempDir(), rounds: 1}
	build := exec.Command("go", "build", "-o", p.bin+string(filepath.Separator), "../../cmd/nvmetgt", "../../cmd/nvmeinit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	target, err := p.startTarget("--volume", "mem:16MiB")
	if err != nil {
		t.Fatal(err)
	}
	defer target.stop()
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
		var s sample
		// So long that little passes between asking one side and the other, which takes longer where the machine is busy.
		for p.time = time.Second; p.time <= 16*time.Second; p.time *= 2 {
			if s, err = p.measure(target, "rdma", loadArgs(c.load)...); err != nil {
				t.Fatalf("%s: %v", c.load, err)
			}
			if s.asked < p.time/20 {
				break
			}
		}
		// The two sides aren't asked at one moment, and a busy machine has packets sent again: with each all the data
		// of an I/O at most, where it is a READ request.
		const sentAgain = "nvmeof_rnic_retransmitted_pkts_total"
		tolerance := 0.1*c.data + c.capsuleBytes + (s.host[sentAgain]+s.target[sentAgain])*c.data
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

func (s sample) ofHost() figures   { return s.host }
func (s sample) ofTarget() figures { return s.target }
