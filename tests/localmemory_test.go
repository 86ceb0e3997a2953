package tests

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLocalMemory: packets of two programs on this machine go through shared memory if both are told to share it, and
// through their sockets otherwise, which a host that was told to share it says; data is the same.
func TestLocalMemory(t *testing.T) {
	t.Parallel()
	option := []string{"--local-memory"}
	for _, c := range []struct {
		name         string
		target, host []string
		shared       bool
	}{
		{"both", option, option, true},
		{"both, without ICRC", append(option, "--no-local-icrc"), append(option, "--no-local-icrc"), true},
		{"both, without offloads", append(option, "--plain-udp"), append(option, "--plain-udp"), true},
		{"both, never looking", append(option, "--busy-poll", "0"), append(option, "--busy-poll", "0"), true},
		{"both, with packets lost", append(option, "--fault", "loss=0.5%"), option, true},
		{"only the target", option, nil, false},
		{"only the host", nil, option, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := freeAddr(t)
			tgt := startTargetAt(t, addr, append(c.target, "--volume", "mem:16MiB", "--metrics", addr.String()+":"+metricsPort)...)
			for _, bs := range []string{"4k", "256k"} {
				tgt.must(t, time.Minute, "rdma", "bench", append(c.host, "--rw", "write", "--bs", bs, "--size", "16m",
					"--iodepth", "16", "--verify", "crc32c")...)
			}
			if c.shared {
				tgt.sharesMemory(t, c.host...)
			} else if s := tgt.scrape(t); s.sum(t, "nvmeof_udp_received_shared_bytes_total")+s.sum(t, "nvmeof_udp_sent_shared_bytes_total") > 0 {
				t.Error("packets went through shared memory")
			}
			r := tgt.run(t, time.Minute, "rdma", "bench", append(c.host, "--rw", "randread", "--runtime", "1500ms")...)
			const nothing = "--local-memory: nothing went through shared memory; the target must run on this host"
			if got, want := strings.Contains(r.stderr, nothing), c.host != nil && !c.shared; r.code != 0 || got != want {
				t.Errorf("exit code %d; the host says that it shares nothing %t, want %t: %s", r.code, got, want, r.stderr)
			}
			tgt.stop(t)
		})
	}
}

// sharesMemory waits until nearly all packets of a load go through shared memory. A load that ends by itself may end
// before the two programs have found each other.
func (p *targetProgram) sharesMemory(t *testing.T, flags ...string) {
	t.Helper()
	load := p.startInit(t, "rdma", "bench", append(flags, "--rw", "randrw", "--bs", "16k", "--iodepth", "16", "--runtime", "1m")...)
	now := p.scrape(t)
	eventually(t, cliTimeout, "packets in shared memory", func() bool {
		before := now
		now = p.scrape(t)
		more := func(figure string) float64 { return now.sum(t, figure) - before.sum(t, figure) }
		for _, name := range []string{"received", "sent"} {
			if all := more("nvmeof_udp_" + name + "_bytes_total"); all < 1<<20 || more("nvmeof_udp_"+name+"_shared_bytes_total") < all*9/10 {
				return false
			}
		}
		return true
	})
	load.signal(syscall.SIGINT)
	load.wait(t, cliTimeout)
}

// TestLocalMemoryKill: either program may be killed in the middle of I/O; the next one shares memory again.
func TestLocalMemoryKill(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	args := []string{"--local-memory", "--volume", "mem:16MiB", "--metrics", addr.String() + ":" + metricsPort}
	load := []string{"--local-memory", "--rw", "randrw", "--bs", "16k", "--iodepth", "32", "--runtime", "60s", "-k", "2"}
	tgt := startTargetAt(t, addr, args...)
	for range 2 {
		host := tgt.startInit(t, "rdma", "bench", load...)
		tgt.underLoad(t, 1)
		host.kill()
		eventually(t, 20*time.Second, "the loss of the host", func() bool {
			return tgt.scrape(t).sum(t, "nvmeof_rdma_connections") == 0
		})
	}
	host := tgt.startInit(t, "rdma", "bench", load...)
	tgt.underLoad(t, 1)
	tgt.kill()
	if code := host.wait(t, 30*time.Second); code != 1 {
		t.Errorf("nvmeinit: exit code %d, want 1", code)
	}
	tgt = startTargetAt(t, addr, args...)
	tgt.must(t, time.Minute, "rdma", "bench", "--local-memory", "--rw", "write", "--bs", "4k", "--size", "16m", "--iodepth", "16", "--verify", "crc32c")
	tgt.sharesMemory(t, "--local-memory")
	tgt.stop(t)
}
