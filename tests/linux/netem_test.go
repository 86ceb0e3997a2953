package linux

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// faultyNetworks are what netem(8) does to packets.
var faultyNetworks = []struct{ name, netem string }{
	{"loss-0.1%", "loss 0.1%"},
	{"loss-1%", "loss 1%"},
	{"loss-5%", "loss 5%"},
	{"reordering", "delay 2ms reorder 90% 50%"}, // one packet in ten comes late
	{"duplication", "duplicate 5%"},
}

// directions are those of the packets that netem acts on, as the machine sees them.
var directions = []struct {
	name     string
	out, in  bool
	together bool // only when figures are taken
}{{"out", true, false, false}, {"in", false, true, false}, {"both", true, true, true}}

// figuresEnv makes TestNetem take its figures, which takes a quarter of an hour.
const figuresEnv = "NVMEOF_LINUX_FIGURES"

// TestNetem injects faults into the network of a machine that is host and target, over RDMA: whatever they are,
// nvmeinit keeps its connection to the kernel's target, the kernel's host keeps its connection to nvmetgt, and the data
// is right. Throughput is shown next to that of Linux with Linux.
func TestNetem(t *testing.T) {
	onceEach(t, kernels(), func(t *testing.T, version string, mtu int) {
		p, other := netemPeers(t, version, mtu)
		t.Run("nvmeinit", func(t *testing.T) { testNetemTarget(t, p, version) })
		t.Run("kernel-host", func(t *testing.T) { testNetemHost(t, p) })
		t.Run("registering-host", func(t *testing.T) { testNetemRegistering(t, p) })
		t.Run("figures", func(t *testing.T) {
			if os.Getenv(figuresEnv) == "" {
				t.Skip("make interop measures")
			}
			testNetemFigures(t, p, other)
		})
	})
}

// netemPeers boots the machine with the faulty network, and one to compare with.
func netemPeers(t *testing.T, version string, mtu int) (p, other *peer) {
	t.Helper()
	if err := lab.Network(t.Context(), mtu); err != nil {
		t.Fatal(err)
	}
	prepared := func(name string, number int) *peer {
		p := boot(t, lab.Config{Name: name, Number: number, MTU: mtu, Memory: 768, Image: images[version]},
			func(line string) bool { return ownFault(line, version) })
		p.must(t, "modprobe -a rdma_rxe nvmet-rdma && modprobe null_blk nr_devices=0 && rdma link add rxe0 type rxe netdev eth0")
		return p
	}
	p, other = prepared("netem", 4), prepared("other", 5)
	p.must(t, "modprobe -a sch_netem sch_ingress cls_matchall act_mirred && modprobe ifb numifbs=1 && ip link set ifb0 up && "+
		"ip link set ifb0 txqueuelen 1000 && tc qdisc add dev eth0 ingress && "+
		"tc filter add dev eth0 parent ffff: protocol all matchall action mirred egress redirect dev ifb0")
	return p, other
}

// reorderingBreaks reports whether rxe may break its own connection when it receives packets in another order: with
// Linux as its host, 6.12 did so in 7 of 30 runs of this workload, with nvmeinit in 1 of 65.
func reorderingBreaks(version string) bool { return version == "6.12" }

// ownFault reports whether a line of a kernel's complaint belongs to what it then says about itself, which is that a
// request failed for no reason that it knows.
func ownFault(line, version string) bool {
	return reorderingBreaks(version) && (strings.Contains(line, "rxe_completer") || strings.Contains(line, "Call Trace"))
}

// netem sets the faults of the machine's packets until the test ends.
func (p *peer) netem(t *testing.T, faults string, out, in bool) {
	t.Helper()
	for dev, is := range map[string]bool{"eth0": out, "ifb0": in} {
		if is {
			p.must(t, fmt.Sprintf("tc qdisc replace dev %s root netem limit 10000 %s", dev, faults))
		}
	}
	t.Cleanup(func() { p.must(t, "for d in eth0 ifb0; do tc qdisc del dev $d root 2>/dev/null; done; true") })
}

// useRDMAHost loads the kernel's host. Unless it registers each buffer separately, small requests survive a loss: rxe
// repeats a registration with the request that it is part of, and fails.
func (p *peer) useRDMAHost(t testing.TB, register string) {
	t.Helper()
	p.must(t, "rmmod nvme-rdma 2>/dev/null; modprobe nvme-rdma register_always="+register)
}

// eachFault runs do on each faulty network and direction.
func eachFault(t *testing.T, p *peer, do func(t *testing.T)) {
	for _, f := range faultyNetworks {
		for _, d := range directions {
			if d.together {
				continue
			}
			t.Run(f.name+"-"+d.name, func(t *testing.T) {
				p.netem(t, f.netem, d.out, d.in)
				do(t)
			})
		}
	}
}

// testNetemTarget: nvmeinit and the kernel's target.
func testNetemTarget(t *testing.T, p *peer, version string) {
	p.export(t, "rdma")
	p.must(t, "dmesg -C")
	eachFault(t, p, func(t *testing.T) {
		out, stderr, code := p.verifiedBench(t)
		if code != 0 && strings.Contains(t.Name(), "/reordering-in") && reorderingBreaks(version) && strings.Contains(stderr, "connection lost") {
			t.Logf("once more, since rxe may have broken the connection: %s\n%s", stderr, p.must(t, "dmesg -c"))
			out, stderr, code = p.verifiedBench(t)
		}
		if code != 0 {
			t.Errorf("nvmeinit bench: exit code %d: %s\n%s", code, stderr, out)
		}
	})
	p.noControllers(t)
	p.quiet(t)
}

// verifiedBench writes and reads requests of several sizes, and compares what comes back.
func (p *peer) verifiedBench(t *testing.T) (stdout, stderr string, code int) {
	t.Helper()
	return p.bench(t, "--rw", "randrw", "--bssplit", "4k/60:32k/30:128k/10", "--iodepth", "16", "--size", "8m", "--verify", "crc32c")
}

// bench runs nvmeinit bench with the machine's target. A lost REP of Linux is repeated after 4 s, so the keep alive
// timeout is longer than usual; and a connection that wasn't made within nvmeinit's 10 s, because two were lost in a
// row, is tried again.
func (p *peer) bench(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	args = append([]string{"bench", "-k", "20", "-t", "rdma", "-a", p.Addr.String(), "-s", "4420", "-n", testNQN}, args...)
	for range 3 {
		stdout, stderr, code = nvmeinit(t, args...)
		if !strings.Contains(stderr, "no answer within") {
			break
		}
	}
	return stdout, stderr, code
}

// testNetemHost: the kernel's host and nvmetgt, one connection for each fault.
func testNetemHost(t *testing.T, p *peer) {
	p.useRDMAHost(t, "N")
	serve(t, "--volume", "mem:16MiB")
	p.must(t, "dmesg -C")
	eachFault(t, p, func(t *testing.T) {
		dev := p.connect(t, "rdma", "--nr-io-queues=1")
		// Requests that are merged have several segments, which are registered after all.
		p.must(t, "for q in /sys/block/nvme*/queue/nomerges; do echo 2 > $q; done")
		p.verify(t, dev, "--size=2m --rw=randrw --bs=4k")
		p.disconnect(t)
	})
}

// testNetemRegistering: with registrations rxe breaks its own connection when it retransmits. The host reconnects each
// time, and what it wrote is there.
func testNetemRegistering(t *testing.T, p *peer) {
	p.useRDMAHost(t, "Y")
	serve(t, "--volume", "mem:64MiB")
	// Linux 6.1 stalls until a command times out; here after 4 s rather than 30 s.
	p.must(t, "dmesg -C; echo 4 > /sys/module/nvme_core/parameters/io_timeout")
	dev := p.connect(t, "rdma", "--nr-io-queues=1", "--reconnect-delay=1", "--ctrl-loss-tmo=120")
	done := make(chan error, 1)
	p.netem(t, "loss 1%", true, true)
	go func() {
		_, err := p.try(t, "fio --name=registering --filename="+dev+" --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite "+
			"--bs=64k --size=16m --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/tmp/fio || { cat /tmp/fio >&2; exit 1; }")
		done <- err
	}()
	for deadline := time.Now().Add(time.Minute); p.reconnects(t) < 2 && time.Now().Before(deadline) && len(done) == 0; {
		time.Sleep(time.Second)
	}
	p.must(t, "for d in eth0 ifb0; do tc qdisc del dev $d root; done") // or it might never end
	if err := <-done; err != nil {
		t.Errorf("%v\n%s", err, p.must(t, "dmesg"))
	}
	n := p.reconnects(t)
	t.Attr("reconnections", fmt.Sprintf("rxe broke its connection under 1%% loss, as it does with Linux; nvmetgt served %s reconnections, data verified", atLeast(n)))
	p.want(t, "nvme disconnect -n "+testNQN, "disconnected 1")
	p.must(t, "dmesg -C; echo 30 > /sys/module/nvme_core/parameters/io_timeout")
}

// atLeast keeps a number that depends on chance from changing with each run.
func atLeast(n int) string {
	if n == 0 {
		return "no"
	}
	return "one or more"
}

// reconnects returns how often the kernel's host has reconnected since dmesg was cleared.
func (p *peer) reconnects(t testing.TB) int {
	t.Helper()
	return strings.Count(p.must(t, "dmesg"), "Successfully reconnected")
}

// testNetemFigures compares ours with Linux and Linux, under the same loss in both directions, one after the other:
// requests a second, and the share that remains of those without loss.
func testNetemFigures(t *testing.T, p, other *peer) {
	p.export(t, "rdma")
	for _, host := range []*peer{p, other} {
		host.useRDMAHost(t, "N")
	}
	t.Cleanup(func() {
		for _, host := range []*peer{p, other} {
			_, _ = host.try(t, "nvme disconnect-all; dmesg -C")
		}
	})
	pairs := []pair{
		{"nvmeinit → Linux", p.iopsOfNvmeinit},
		{"Linux → Linux", func(t *testing.T, w workload) float64 { return other.iopsOfLinux(t, p.Addr.String(), w) }},
		{"Linux → nvmetgt", func(t *testing.T, w workload) float64 {
			s := serve(t, "--volume", "mem:64MiB") // uses our RNIC's port until it ends
			defer s.kill()
			return p.iopsOfLinux(t, lab.HostAddr.String(), w)
		}},
	}
	for _, w := range []workload{{"randread", "4k", 16}, {"randwrite", "4k", 16}, {"read", "128k", 4}} {
		var lines []string
		whole := map[string]float64{}
		for _, loss := range []string{"0%", "0.1%", "1%", "5%"} {
			p.must(t, "for d in eth0 ifb0; do tc qdisc replace dev $d root netem limit 10000 loss "+loss+"; done")
			line := "loss " + loss
			for _, pair := range pairs {
				n := pair.iops(t, w)
				if loss == "0%" {
					whole[pair.name] = n
				}
				line += fmt.Sprintf(", %s %.0f/s (%.0f%%)", pair.name, n, 100*n/max(whole[pair.name], 1))
			}
			t.Log(w.rw, w.bs, line)
			lines = append(lines, line)
		}
		t.Attr(fmt.Sprintf("%s-%s-depth-%d-requests-a-second", w.rw, w.bs, w.depth), strings.Join(lines, " | "))
	}
	p.must(t, "for d in eth0 ifb0; do tc qdisc del dev $d root; done")
}

// pair is a host and a target that are measured.
type pair struct {
	name string
	iops func(*testing.T, workload) float64
}

type workload struct {
	rw, bs string
	depth  int
}

const measuredSeconds = 2

// iopsOfNvmeinit measures nvmeinit and the machine's target.
func (p *peer) iopsOfNvmeinit(t *testing.T, w workload) float64 {
	t.Helper()
	out, stderr, code := p.bench(t, "-o", "json", "--rw", w.rw, "--bs", w.bs, "--iodepth", fmt.Sprint(w.depth), "--runtime", fmt.Sprint(measuredSeconds))
	if code != 0 {
		t.Errorf("nvmeinit bench: exit code %d: %s", code, stderr)
		return 0
	}
	return iops(t, out)
}

// iopsOfLinux measures the machine's host and the target at addr. Linux with Linux may fail.
func (p *peer) iopsOfLinux(t *testing.T, addr string, w workload) float64 {
	t.Helper()
	dev, err := p.try(t, fmt.Sprintf("nvme connect -t rdma -a %s -s 4420 -n %s --nr-io-queues=1 --reconnect-delay=1 && "+
		"for i in $(seq 100); do ls /dev/nvme*n1 2>/dev/null && exit 0; sleep 0.1; done; exit 1", addr, testNQN))
	if err != nil {
		t.Logf("Linux host → %s: %v", addr, err)
		return 0
	}
	out, err := p.try(t, fmt.Sprintf("timeout 40 fio --name=figures --filename=%s --direct=1 --ioengine=libaio --rw=%s --bs=%s --iodepth=%d "+
		"--time_based --runtime=%d --norandommap --output-format=json", strings.TrimSpace(dev), w.rw, w.bs, w.depth, measuredSeconds))
	// A host that rxe has broken may never finish while packets get lost.
	_, _ = p.try(t, "timeout 60 nvme disconnect -n "+testNQN)
	if err != nil {
		t.Logf("Linux host → %s: %v", addr, err)
		return 0
	}
	return iops(t, out)
}

// iops parses the report of fio, or of nvmeinit, which has the same format.
func iops(t *testing.T, report string) float64 {
	t.Helper()
	var r struct {
		Jobs []struct {
			Read, Write struct{ IOPS float64 }
		}
	}
	if i := strings.IndexByte(report, '{'); i > 0 {
		report = report[i:] // fio's warnings come before
	}
	if err := json.Unmarshal([]byte(report), &r); err != nil || len(r.Jobs) == 0 {
		t.Errorf("report of fio: %v\n%s", err, report)
		return 0
	}
	return r.Jobs[0].Read.IOPS + r.Jobs[0].Write.IOPS
}
