package linux

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// TestPaths: nvmeinit reads and writes over two ports of the kernel's target, one for each transport, of which one goes
// away and comes back and the other changes its ANA state, and loses nothing. Then the namespace moves to another ANA
// group, which only the second port can reach.
func TestPaths(t *testing.T) {
	onKernels(t, "modprobe -a rdma_rxe ib_uverbs nvmet-rdma nvmet-tcp && modprobe null_blk nr_devices=0", func(t *testing.T, p *peer) {
		t.Run("paths", func(t *testing.T) { testPaths(t, p) })
	})
}

// tcpPort is the port of the second path.
const tcpPort = "4421"

func testPaths(t *testing.T, p *peer) {
	p.export(t, "rdma")
	p.must(t, fmt.Sprintf(`set -e; cd /sys/kernel/config/nvmet
		mkdir ports/3; echo tcp > ports/3/addr_trtype; echo ipv4 > ports/3/addr_adrfam
		echo %s > ports/3/addr_traddr; echo %s > ports/3/addr_trsvcid
		ln -s $PWD/subsystems/%s ports/3/subsystems/`, p.Addr, tcpPort, testNQN))
	t.Cleanup(func() { p.must(t, "rmdir /sys/kernel/config/nvmet/ports/*/ana_groups/2") })
	type result struct {
		out, stderr string
		code        int
	}
	done := make(chan result, 1)
	go func() {
		out, stderr, code := nvmeinit(t, "bench", "-t", "rdma", "-a", p.Addr.String(), "-n", testNQN, "--path", "tcp://"+p.Addr.String()+":"+tcpPort,
			"--rw", "randrw", "--bs", "4k", "--iodepth", "8", "--size", "8m", "--verify", "crc32c", "--time_based", "--runtime", "30s",
			"--reconnect-delay", "1", "-k", "60", "-o", "json")
		done <- result{out, stderr, code}
	}()
	pause := func() { time.Sleep(4 * time.Second) } // of the operator
	pause()
	p.must(t, "rm /sys/kernel/config/nvmet/ports/1/subsystems/"+testNQN)
	pause()
	p.must(t, "cd /sys/kernel/config/nvmet && ln -s $PWD/subsystems/"+testNQN+" ports/1/subsystems/")
	pause()
	p.must(t, "echo inaccessible > /sys/kernel/config/nvmet/ports/3/ana_groups/1/ana_state")
	pause()
	p.must(t, "echo optimized > /sys/kernel/config/nvmet/ports/3/ana_groups/1/ana_state")
	pause()
	p.must(t, `cd /sys/kernel/config/nvmet && mkdir ports/1/ana_groups/2 ports/3/ana_groups/2 &&
		echo optimized > ports/3/ana_groups/2/ana_state && echo 2 > subsystems/`+testNQN+`/namespaces/1/ana_grpid`)
	r := <-done
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	var report struct {
		Paths []struct {
			Path, State, Access        string
			Requests, Losses, Connects int
		} `json:"nvmeinit_paths"`
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || len(report.Paths) != 2 {
		t.Fatalf("%v: %s", err, r.out)
	}
	for i, want := range []struct {
		losses int
		access string
	}{{1, "inaccessible"}, {0, "optimized"}} {
		got := report.Paths[i]
		if got.State != "live" || got.Access != want.access || got.Losses != want.losses || got.Connects != want.losses+1 || got.Requests == 0 {
			t.Errorf("%+v, want %+v\n%s", got, want, r.stderr)
		}
	}
	t.Logf("%+v\n%s", report.Paths, r.stderr)
}
