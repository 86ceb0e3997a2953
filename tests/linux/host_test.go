package linux

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// testHost: the kernel's host uses nvmetgt.
func testHost(t *testing.T, p *peer, transport string) {
	t.Run("volume", func(t *testing.T) {
		volume := filepath.Join(t.TempDir(), "volume")
		serve(t, "--volume", volume, "--size", "128MiB", "--metrics", metricsAddr)
		t.Run("commands", func(t *testing.T) { testCommands(t, p, transport) })
		t.Run("fio", func(t *testing.T) { testFio(t, p, transport) })
		t.Run("discard", func(t *testing.T) { testDiscard(t, p, transport, volume) })
		t.Run("ipv6", func(t *testing.T) {
			dev := p.connectTo(t, transport, lab.HostAddr6.String(), testNQN)
			p.verify(t, dev, "--size=4m --rw=randrw --bsrange=4k-128k")
			p.disconnect(t)
		})
	})
	t.Run("no-in-capsule", func(t *testing.T) {
		serve(t, "--volume", "mem:32MiB", "--in-capsule", "0")
		dev := p.connect(t, transport)
		p.verify(t, dev, "--size=4m --rw=randwrite --bsrange=4k-64k")
		p.disconnect(t)
	})
	if transport == "rdma" {
		t.Run("engines", func(t *testing.T) {
			serve(t, "--volume", "mem:32MiB", "--engines", "3", "--metrics", metricsAddr)
			dev := p.connect(t, transport)
			p.verify(t, dev, "--size=4m --rw=randwrite --bsrange=4k-64k")
			for i := range 3 { // Linux's queues are spread over them
				if n := metric(t, fmt.Sprintf(`nvmeof_rnic_rx_send_requests_total{device="%s/%d"}`, hostAddr, i)); n == 0 {
					t.Errorf("engine %d has received nothing", i)
				}
			}
			p.disconnect(t)
		})
	}
}

// connect connects the kernel to nvmetgt, and returns the block device of namespace 1.
func (p *peer) connect(t testing.TB, transport string, options ...string) string {
	t.Helper()
	return p.connectTo(t, transport, hostAddr, testNQN, options...)
}

// connectTo is connect for another address and subsystem.
func (p *peer) connectTo(t testing.TB, transport, addr, nqn string, options ...string) string {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() { // leave nothing to the next test
			_, _ = p.try(t, "umount /mnt/fs; nvme disconnect-all; dmesg -C")
		}
	})
	p.must(t, fmt.Sprintf("nvme connect -t %s -a %s -s 4420 -n %s %s", transport, addr, nqn, strings.Join(options, " ")))
	// The device of a namespace belongs to the subsystem (multipath), and has a size once it is usable; nvme0c0n1 is
	// one path to it.
	return strings.TrimSpace(p.must(t, `cd /sys/class/nvme-subsystem; for i in $(seq 100); do
		s=$(dirname $(grep -lx `+nqn+` */subsysnqn))
		for n in $s/nvme*n*; do case $n in *c*n*) continue; esac
			d=/dev/${n#*/}; [ -b $d ] && [ "$(cat $n/size)" != 0 ] && { echo $d; exit 0; }; done; sleep 0.1; done; exit 1`))
}

// disconnect undoes connect; the kernel must not have complained about any of it.
func (p *peer) disconnect(t testing.TB) {
	t.Helper()
	p.want(t, "nvme disconnect -n "+testNQN, "disconnected")
	p.quiet(t)
}

// testCommands: what nvme-cli asks for, it gets.
func testCommands(t *testing.T, p *peer, transport string) {
	where := fmt.Sprintf("-t %s -a %s -s 4420", transport, hostAddr)
	p.want(t, "nvme discover "+where, "subnqn:  "+testNQN)
	dev := p.connect(t, transport)
	ctrl := strings.TrimSpace(p.must(t, "ls -d /sys/class/nvme/nvme* | sed 's,.*/,/dev/,'"))
	for _, c := range []struct{ line, text string }{
		{"nvme list", dev},
		{"nvme list-subsys", transport + " traddr=" + hostAddr + ",trsvcid=4420"},
		{"nvme list-ns " + ctrl, "0x1"},
		{"nvme id-ctrl " + ctrl, "subnqn    : " + testNQN},
		{"nvme id-ns " + dev, "nsze    : 0x8000"}, // 128 MiB of 4 KiB blocks
		{"nvme ns-descs " + dev, "uuid    : "},
		{"nvme smart-log " + ctrl, "critical_warning			: 0"},
		{"nvme error-log " + ctrl + " -e 4", "error_count"},
		{"nvme fw-log " + ctrl, "afi  : 0x1"},
		{"nvme changed-ns-list-log " + ctrl, ""},
		{"nvme effects-log " + ctrl, ""},
		{"nvme get-log " + ctrl + " -i 2 -l 512", "0000:"},
		{"nvme get-property " + ctrl + " -o 8", "10400"},
		{"nvme flush " + dev + " -n 1", "success"},
		{"nvme dsm " + dev + " -n 1 -d -s 256,512 -b 8,16", "success"},
		{"nvme write-zeroes " + dev + " -n 1 -s 300 -c 7", "Success"},
		{"head -c 4096 /dev/urandom >/tmp/block && nvme write " + dev + " -s 5 -c 0 -z 4096 -d /tmp/block 2>&1", "Success"},
		{"nvme compare " + dev + " -s 5 -c 0 -z 4096 -d /tmp/block 2>&1", "Success"},
		{"nvme ns-rescan " + ctrl, ""},
	} {
		p.want(t, c.line, c.text)
	}
	if transport == "tcp" { // nvmeinit can't use the RNIC's port, which nvmetgt uses
		testJSON(t, p, ctrl, dev)
	}
	// Every feature of the NVM command set that a fabrics controller has.
	for _, fid := range []int{0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0a, 0x0b, 0x0e, 0x0f} {
		of := ctrl
		if fid == 0x05 { // a namespace's
			of = dev
		}
		p.want(t, fmt.Sprintf("nvme get-feature %s -f %d", of, fid), fmt.Sprintf("get-feature:0x%02x", fid))
	}
	// The target refuses what it doesn't know, and keeps serving.
	for _, c := range []struct{ line, text string }{
		{"nvme compare " + dev + " -s 6 -c 0 -z 4096 -d /tmp/block 2>&1; true", "Compare Failure"},
		{"nvme read " + dev + " -s 999999999 -c 0 -z 4096 2>&1; true", "LBA Out of Range"},
		{"nvme admin-passthru " + ctrl + " -o 0xc5 2>&1; true", "Invalid Command Opcode"},
		{"nvme get-log " + ctrl + " -i 0x70 -l 64 2>&1; true", "Invalid Log Page"},
		{"nvme get-feature " + ctrl + " -f 5 2>&1; true", "Invalid Namespace or Format"},
	} {
		p.want(t, c.line, c.text)
	}
	p.must(t, "nvme reset "+ctrl)
	p.want(t, "sleep 1; cat /sys/class/nvme/"+filepath.Base(ctrl)+"/state", "live")
	p.disconnect(t)

	// The discovery log names both addresses; nvme-cli omits the other transport, and the kernel joins the two paths
	// into one device.
	p.must(t, "nvme connect-all "+where)
	// nvme-cli may omit a path whose namespaces the kernel announces nevertheless.
	second := lab.HostAddr6.String()
	p.want(t, "for i in $(seq 50); do nvme list-subsys | grep -q "+second+" && break; sleep 0.1; done; nvme list-subsys", second)
	p.want(t, "nvme disconnect -n "+testNQN, "disconnected 2 controller(s)")
	p.quiet(t)
}

// verify runs fio on a device, at depth 16, and checks what it reads.
func (p *peer) verify(t testing.TB, dev, options string) {
	t.Helper()
	p.must(t, "fio --name=verify --filename="+dev+" --direct=1 --ioengine=libaio --iodepth=16 --verify=crc32c "+
		"--verify_fatal=1 --do_verify=1 --randrepeat=0 --output=/tmp/fio "+options+" || { cat /tmp/fio >&2; exit 1; }")
}

// testFio: random and mixed sizes, with several queues and, over TCP, digests.
func testFio(t *testing.T, p *peer, transport string) {
	sets := []struct {
		options string
		queues  int // including the admin queue
	}{
		{"-i 1", 2}, {"-i 2", 3}, {"-i 4", 5},
		{"-i 1 -W 1 -P 1", 4}, // a queue each for reads, for writes and for polling
	}
	if transport == "tcp" {
		sets = append(sets, sets[0], sets[1])
		sets[4].options, sets[5].options = "-i 1 -g", "-i 2 -g -G"
	}
	for _, set := range sets {
		dev := p.connect(t, transport, set.options)
		p.want(t, "cat /sys/class/nvme/nvme*/queue_count", fmt.Sprintln(set.queues))
		p.verify(t, dev, "--size=8m --rw=randrw --bsrange=4k-256k")
		p.disconnect(t)
	}
	dev := p.connect(t, transport)
	p.verify(t, dev, "--size=4m --rw=write --bs=4k")
	p.disconnect(t)
}

// testDiscard: the volume gets discards and write zeroes as such, and its file frees what the host discards.
func testDiscard(t *testing.T, p *peer, transport, volume string) {
	dev := p.connect(t, transport)
	p.must(t, "dd if=/dev/urandom of="+dev+" bs=1M count=16 oflag=direct")
	full := allocated(t, volume)
	const discards, zeroes = "nvmeof_namespace_discarded_ranges_total", "nvmeof_namespace_zeroed_ranges_total"
	d, z := metric(t, discards), metric(t, zeroes)
	p.must(t, "blkdiscard -f -o 0 -l 8M "+dev)
	if metric(t, discards) == d || metric(t, zeroes) != z {
		t.Errorf("a discard: %v ranges discarded, %v zeroed", metric(t, discards)-d, metric(t, zeroes)-z)
	}
	if now := allocated(t, volume); now > full-7<<20 {
		t.Errorf("the volume holds %d bytes after a discard of 8 MiB, %d before", now, full)
	}
	d = metric(t, discards)
	p.must(t, "blkdiscard -f -z -o 8M -l 4M "+dev)
	if metric(t, discards) != d || metric(t, zeroes) == z {
		t.Errorf("write zeroes: %v ranges discarded, %v zeroed", metric(t, discards)-d, metric(t, zeroes)-z)
	}
	p.must(t, "cmp -n 12582912 "+dev+" /dev/zero")
	p.disconnect(t)
}

// metricsAddr is where nvmetgt serves its figures.
var metricsAddr = net.JoinHostPort(hostAddr, "9090")

// metric is a figure of namespace 1, or of what the name has in braces.
func metric(t testing.TB, name string) (v float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' '):], &v); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// allocated returns the space that a file takes.
func allocated(t testing.TB, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
