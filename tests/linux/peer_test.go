package linux

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// peer is the machine with the Linux kernel that we talk to.
type peer struct {
	*lab.Machine
	excused bool // one crash of its programs was excused (see both)
}

// boot starts a machine for t. When t ends it must still be running and its kernel may not have complained, except for
// what is excused.
func boot(t *testing.T, cfg lab.Config, excused func(line string) bool) *peer {
	t.Helper()
	m, err := lab.Boot(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer m.Close()
		for _, line := range m.Complaints() {
			if excused == nil || !excused(line) {
				t.Errorf("the kernel says: %s", line)
			}
		}
		if last, crashed := m.Crashed(); crashed {
			t.Errorf("the machine is gone; it said last:\n%s", last)
		}
		if m.EmulatorFault() {
			t.Attr("emulator-fault", "its kernel died of what no processor does")
		}
	})
	return &peer{Machine: m}
}

// mtus are the network's; rxe derives path MTUs of 1024 and 4096 from them.
var mtus = []int{1500, 9000}

// TestLinux runs everything against each kernel, with each MTU, one machine after the other. In a short run each kernel
// and each MTU is used once.
func TestLinux(t *testing.T) {
	fs := &fileSystem{volume: filepath.Join(t.TempDir(), "volume")}
	for i, mtu := range mtus {
		for j, version := range lab.Kernels {
			if testing.Short() && i != j%len(mtus) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", version, mtu), func(t *testing.T) { testPeer(t, version, mtu, fs) })
		}
	}
}

// onceEach runs do with each of the kernels, and with the MTUs by turns, beginning with the longer: a short TestLinux
// begins with the shorter.
func onceEach(t *testing.T, versions []string, do func(t *testing.T, version string, mtu int)) {
	for i, version := range versions {
		mtu := mtus[(i+1)%len(mtus)]
		t.Run(fmt.Sprintf("%s/%d", version, mtu), func(t *testing.T) {
			if images[version] == nil {
				t.Skipf("this Debian has no kernel %s", version)
			}
			do(t, version, mtu)
		})
	}
}

// onKernels boots a machine with each of kernels and an rxe device, which load prepares.
func onKernels(t *testing.T, load string, do func(t *testing.T, p *peer)) {
	for _, version := range kernels() {
		t.Run(version, func(t *testing.T) {
			if images[version] == nil {
				t.Skipf("this Debian has no kernel %s", version)
			}
			const mtu = 9000
			if err := lab.Network(t.Context(), mtu); err != nil {
				t.Fatal(err)
			}
			p := boot(t, lab.Config{Name: "peer", Number: 2, MTU: mtu, Processors: processors, Image: images[version]}, nil)
			p.must(t, load+" && rdma link add rxe0 type rxe netdev eth0 && dmesg -C")
			do(t, p)
		})
	}
}

// processors is how many a machine needs for four I/O queues: Linux has at most one per processor.
const processors = 4

func testPeer(t *testing.T, version string, mtu int, fs *fileSystem) {
	if images[version] == nil {
		t.Skipf("this Debian has no kernel %s", version)
	}
	if err := lab.Network(t.Context(), mtu); err != nil {
		t.Fatal(err)
	}
	p := boot(t, lab.Config{Name: "peer", Number: 2, MTU: mtu, Processors: processors, Image: images[version]}, nil)
	watchFrames(t, p)
	t.Attr("kernel", p.Image.Release+", "+strings.TrimSpace(p.must(t, "nvme version | head -n 1")))
	p.must(t, "modprobe -a rdma_rxe ib_uverbs rdma_ucm nvme-rdma nvme-tcp nvmet-rdma nvmet-tcp && modprobe null_blk nr_devices=0")
	p.must(t, "rdma link add rxe0 type rxe netdev eth0")
	if version == "5.10" { // its connection manager sends nothing to a neighbor that isn't known yet
		p.must(t, fmt.Sprintf("ping -c 1 %s && ping -c 1 %s", lab.HostAddr, lab.HostAddr6))
	}
	p.must(t, "dmesg -C")
	for _, transport := range transports {
		t.Run("host/"+transport, func(t *testing.T) { testHost(t, p, transport) })
		t.Run("target/"+transport, func(t *testing.T) { testTarget(t, p, transport) })
		t.Run("target-ipv6/"+transport, func(t *testing.T) { testTarget6(t, p, transport) })
		t.Run("refusals/"+transport, func(t *testing.T) { testRefusals(t, p, transport) })
		if mtu == mtus[0] { // the MTU doesn't affect it
			t.Run("auth/"+transport, func(t *testing.T) { testAuth(t, p, transport, transport == "tcp" && !testing.Short()) })
		}
	}
	t.Run("faults", func(t *testing.T) { testFaults(t, p) })
	t.Run("filesystem", func(t *testing.T) { testFileSystem(t, p, fs) })
}

// patience is how long any one command in the machine may take; fio on a busy host is slow.
const patience = 3 * time.Minute

// try runs a shell line in the machine. It is also for clean-up, when t's context has ended.
func (p *peer) try(t testing.TB, line string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	return p.Run(ctx, line)
}

// must is try for lines that must succeed.
func (p *peer) must(t testing.TB, line string) string {
	t.Helper()
	out, err := p.try(t, line)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, p.lastWords(t))
	}
	return out
}

// lastWords returns the kernel's latest messages; if a program crashed, they say at which instruction of which library.
func (p *peer) lastWords(t testing.TB) string {
	t.Helper()
	out, err := p.try(t, "dmesg | tail -n 8")
	if err != nil {
		return fmt.Sprintf("its kernel says nothing: %v", err)
	}
	return "its kernel said last:\n" + out
}

// want is must for lines whose output must contain something.
func (p *peer) want(t testing.TB, line, text string) {
	t.Helper()
	if out := p.must(t, line); !strings.Contains(out, text) {
		t.Errorf("%s: no %q in:\n%s", line, text, out)
	}
}

// harmless are warnings of the kernel about itself, and about random data that looks like the label of a disk.
var harmless = regexp.MustCompile(`long keepalive RTT|hrtimer: interrupt took|drop_caches|resetting controller|null_blk: disk|clocksource:|unsafe global rkey|rdma_rxe: Failed sending|disklabel: Csum bad`)

// quiet fails the test if the kernel wrote a warning or an error since the last time.
func (p *peer) quiet(t testing.TB) {
	t.Helper()
	for line := range strings.Lines(p.must(t, "dmesg -c -l emerg,alert,crit,err,warn")) {
		if !harmless.MatchString(line) {
			t.Errorf("the kernel warns: %s", line)
		}
	}
	p.must(t, "dmesg -C")
}
