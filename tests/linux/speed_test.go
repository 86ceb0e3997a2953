package linux

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// TestSpeed compares both programs with the kernel's host and target, all in one machine and with volumes that forget
// everything. The machine is emulated, so only ratios are meaningful.
func TestSpeed(t *testing.T) {
	if os.Getenv(figuresEnv) == "" {
		t.Skip("make interop measures")
	}
	version := anyKernel(t)
	t.Run(version+"/9000", func(t *testing.T) {
		if err := lab.Network(t.Context(), 1500); err != nil {
			t.Fatal(err)
		}
		p := boot(t, lab.Config{
			Name: "speed", Number: 7, Memory: 1536, Processors: 2, Image: images[version],
			Programs: []string{filepath.Join(binDir, "nvmetgt"), filepath.Join(binDir, "nvmeinit")},
		}, nil)
		p.must(t, speedSetup)
		for _, transport := range transports {
			t.Run(transport, func(t *testing.T) { testSpeed(t, p, transport) })
		}
	})
}

// speedSetup gives each pair of a host and a target a link of its own, a veth pair, of which the host has address 1 and
// the target address 2. The programs have a network namespace each, since rxe uses UDP port 4791 of all addresses in
// the first one, and can't be in another. There, both ends of Linux's own link are local: rules look up its addresses
// before the table of local addresses does, when something is sent (iif lo), and when RDMA-CM asks which device a peer
// is behind (iif is that device).
const speedSetup = `set -e
	modprobe -a rdma_rxe nvme-rdma nvme-tcp nvmet-rdma nvmet-tcp veth; modprobe null_blk nr_devices=0
	ip netns add host; ip netns add target; ip -n host link set lo up; ip -n target link set lo up
	link() { # N, namespaces of host and target
		ip link add host$1 mtu 9000 netns $2 type veth peer name target$1 mtu 9000 netns $3
		ip -n $2 addr add 198.18.$1.1/24 dev host$1; ip -n $3 addr add 198.18.$1.2/24 dev target$1
		ip -n $2 link set host$1 up; ip -n $3 link set target$1 up
	}
	ip netns attach linux 1
	link 1 host target; link 2 linux linux; link 3 linux target; link 4 host linux
	for dev in host2 target2 host3 target4; do rdma link add rxe-$dev type rxe netdev $dev; done

	for dev in all host2 target2; do echo 1 > /proc/sys/net/ipv4/conf/$dev/accept_local; done
	ip rule add pref 10 iif lo from 198.18.2.1 to 198.18.2.2 lookup 101
	ip rule add pref 10 iif lo from 198.18.2.2 to 198.18.2.1 lookup 102
	ip rule add pref 10 iif host2 from 198.18.2.1 to 198.18.2.2 lookup 101
	ip rule add pref 10 iif target2 from 198.18.2.2 to 198.18.2.1 lookup 102
	ip route add 198.18.2.2 dev host2 src 198.18.2.1 table 101
	ip route add 198.18.2.1 dev target2 src 198.18.2.2 table 102
	ip rule add pref 20 lookup local; ip rule del pref 0

	d=/sys/kernel/config/nullb/lab; mkdir $d
	echo 4096 > $d/blocksize; echo 1024 > $d/size; echo 0 > $d/memory_backed; echo 0 > $d/irqmode; echo 1 > $d/power`

// speedLoads are what all are measured with.
var speedLoads = []workload{
	{"randread", "4k", 1}, {"randread", "4k", 32}, {"randread", "4k", 128},
	{"randwrite", "4k", 32}, {"read", "128k", 32}, {"write", "128k", 32},
}

const speedRounds = 5

// testSpeed measures pairs of host and target over their links; and over RDMA also crossed pairs, and those that share
// one address: rxe then hands packets to itself, bypassing UDP and IP.
func testSpeed(t *testing.T, p *peer, transport string) {
	ours, kernel := testNQN+":ours-"+transport, testNQN+":linux-"+transport
	p.exportNull(t, transport, kernel, "198.18.2.2", "198.18.4.2", "198.18.2.1")
	p.serveNull(t, transport, ours, "198.18.1.2", "198.18.3.2", "127.0.0.1")
	defer p.must(t, "nvme disconnect-all")
	fio := func(name, nqn, from, to string) pair {
		dev := p.connectTo(t, transport, to, nqn, "--host-traddr="+from, "--nr-io-queues=1")
		return pair{name, func(t *testing.T, w workload) float64 { return p.speedOfFio(t, w, dev) }}
	}
	bench := func(name, nqn, namespace, to string) pair {
		return pair{name, func(t *testing.T, w workload) float64 {
			return p.speedOfNvmeinit(t, w, namespace, "-t", transport, "-a", to, "-n", nqn)
		}}
	}
	pairs := []pair{
		fio("Linux → Linux", kernel, "198.18.2.1", "198.18.2.2"),
		bench("nvmeinit → nvmetgt", ours, "host", "198.18.1.2"),
	}
	if transport == "tcp" {
		t.Run("link", func(t *testing.T) { measure(t, pairs...) })
		return
	}
	pairs = append(pairs, bench("nvmeinit → Linux", kernel, "host", "198.18.4.2"), fio("Linux → nvmetgt", ours, "198.18.3.1", "198.18.3.2"))
	t.Run("link", func(t *testing.T) { measure(t, pairs...) })
	p.must(t, "nvme disconnect -n "+kernel)
	t.Run("one-address", func(t *testing.T) {
		measure(t, fio("Linux → Linux", kernel, "198.18.2.1", "198.18.2.1"), bench("nvmeinit → nvmetgt", ours, "target", "127.0.0.1"))
	})
}

// measure measures pairs in turns, and records the requests a second of the first, and the others' throughput as shares
// of that.
func measure(t *testing.T, pairs ...pair) {
	header := "load\t" + pairs[0].name + ", a second"
	for _, pair := range pairs[1:] {
		header += "\t" + pair.name
	}
	lines := []string{header}
	for _, w := range speedLoads {
		row := measureLoad(t, pairs, w)
		t.Log(row)
		lines = append(lines, row)
	}
	t.Attr("requests-a-second", strings.Join(lines, " | "))
}

// measureLoad measures pairs in rounds, each in random order, and returns a row: medians and ranges.
func measureLoad(t *testing.T, pairs []pair, w workload) string {
	t.Helper()
	figures := make([][]float64, len(pairs)) // of the first; the others' shares
	for range speedRounds {
		round := make([]float64, len(pairs))
		for _, i := range rand.Perm(len(pairs)) {
			if round[i] = pairs[i].iops(t, w); round[i] == 0 {
				t.Fatalf("%s: no I/O", pairs[i].name)
			}
		}
		for i, n := range round {
			if i > 0 {
				n /= round[0]
			}
			figures[i] = append(figures[i], n)
		}
	}
	row := fmt.Sprintf("%s %s ×%d\t%s", w.rw, w.bs, w.depth, spread("%.0f", figures[0]))
	for _, shares := range figures[1:] {
		row += "\t" + spread("%.2f", shares)
	}
	return row
}

// spread is the median of figures and their range.
func spread(format string, figures []float64) string {
	slices.Sort(figures)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", figures[len(figures)/2], figures[0], figures[len(figures)-1])
}

// exportNull makes the kernel's target export the volume at the addresses.
func (p *peer) exportNull(t testing.TB, transport, nqn string, addresses ...string) {
	t.Helper()
	p.must(t, fmt.Sprintf(`set -e
		dev=/dev/lab; [ -b $dev ] || dev=/dev/nullb$(cat /sys/kernel/config/nullb/lab/index)
		cd /sys/kernel/config/nvmet; s=subsystems/%[1]s; mkdir $s
		echo 1 > $s/attr_allow_any_host; mkdir $s/namespaces/1
		echo $dev > $s/namespaces/1/device_path; echo 1 > $s/namespaces/1/enable
		n=0; for addr in %[3]s; do
			n=$((n+1)); mkdir ports/$n; echo %[2]s > ports/$n/addr_trtype; echo ipv4 > ports/$n/addr_adrfam
			echo $addr > ports/$n/addr_traddr; echo 4420 > ports/$n/addr_trsvcid
			ln -s $PWD/$s ports/$n/subsystems/
		done`, nqn, transport, strings.Join(addresses, " ")))
	t.Cleanup(func() {
		p.must(t, fmt.Sprintf(`cd /sys/kernel/config/nvmet && rm ports/*/subsystems/%[1]s && rmdir ports/* &&
			echo 0 > subsystems/%[1]s/namespaces/1/enable && rmdir subsystems/%[1]s/namespaces/1 subsystems/%[1]s`, nqn))
	})
}

// serveNull makes nvmetgt do the same.
func (p *peer) serveNull(t testing.TB, transport, nqn string, addresses ...string) {
	t.Helper()
	line := "exec ip netns exec target nvmetgt serve --volume null:1GiB --nqn " + nqn
	for _, addr := range addresses {
		line += " --listen " + transport + "://" + addr + ":4420"
	}
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run(context.WithoutCancel(t.Context()), line+" >/tmp/out 2>/tmp/log")
		ended <- err
	}()
	t.Cleanup(func() {
		p.must(t, "kill $(pidof nvmetgt)")
		if err := <-ended; err != nil {
			t.Errorf("nvmetgt after SIGTERM: %v", err)
		}
		p.must(t, "rm /tmp/out")
	})
	p.must(t, "for i in $(seq 600); do grep -q ^ready /tmp/out && exit 0; sleep 0.1; done; cat /tmp/out /tmp/log >&2; exit 1")
}

// speedOptions are options of nvmeinit bench, and of fio.
func speedOptions(w workload) string {
	return fmt.Sprintf("--rw=%s --bs=%s --iodepth=%d --norandommap --time_based --ramp_time=300ms --runtime=800ms --output-format=json", w.rw, w.bs, w.depth)
}

// speedOfNvmeinit measures nvmeinit in a namespace of the machine.
func (p *peer) speedOfNvmeinit(t *testing.T, w workload, namespace string, to ...string) float64 {
	t.Helper()
	return iops(t, p.must(t, "ip netns exec "+namespace+" nvmeinit bench --nr-io-queues=1 "+strings.Join(to, " ")+" "+speedOptions(w)))
}

// speedOfFio measures fio on a device of the machine's host.
func (p *peer) speedOfFio(t *testing.T, w workload, dev string) float64 {
	t.Helper()
	return iops(t, p.must(t, "fio --name=speed --filename="+dev+" --direct=1 --ioengine=io_uring "+speedOptions(w)))
}
