package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// testHost: the kernel's host uses nvmetgt.
func testHost(t *testing.T, p *peer, transport string) {
	t.Run("volume", func(t *testing.T) {
		volume := filepath.Join(t.TempDir(), "volume")
		serve(t, "--volume", volume, "--size", "128MiB")
		t.Run("commands", func(t *testing.T) { testCommands(t, p, transport) })
		t.Run("fio", func(t *testing.T) { testFio(t, p, transport) })
		t.Run("discard", func(t *testing.T) { testDiscard(t, p, transport, volume) })
		t.Run("ipv6", func(t *testing.T) {
			dev := p.connectTo(t, transport, lab.HostAddr6.String())
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
}

// connect connects the kernel to nvmetgt, and returns the block device of namespace 1.
func (p *peer) connect(t testing.TB, transport string, options ...string) string {
	t.Helper()
	return p.connectTo(t, transport, lab.HostAddr.String(), options...)
}

func (p *peer) connectTo(t testing.TB, transport, addr string, options ...string) string {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() { // leave nothing to the next test
			_, _ = p.try(t, "umount /mnt/fs; nvme disconnect-all; dmesg -C")
		}
	})
	p.must(t, fmt.Sprintf("nvme connect -t %s -a %s -s 4420 -n %s %s", transport, addr, testNQN, strings.Join(options, " ")))
	// The device of a namespace belongs to the subsystem (multipath), and has a size once it can
	// be used; nvme0c0n1 is one path to it.
	return strings.TrimSpace(p.must(t, `cd /sys/block; for i in $(seq 100); do
		for n in nvme*n*; do case $n in *c*n*) continue; esac
			[ -b /dev/$n ] && [ "$(cat $n/size)" != 0 ] && { echo /dev/$n; exit 0; }; done; sleep 0.1; done; exit 1`))
}

// disconnect ends what connect began; the kernel must have nothing to say about it all.
func (p *peer) disconnect(t testing.TB) {
	t.Helper()
	p.want(t, "nvme disconnect -n "+testNQN, "disconnected")
	p.quiet(t)
}

// testCommands: what nvme-cli asks, it gets.
func testCommands(t *testing.T, p *peer, transport string) {
	where := fmt.Sprintf("-t %s -a %s -s 4420", transport, lab.HostAddr)
	p.want(t, "nvme discover "+where, "subnqn:  "+testNQN)
	dev := p.connect(t, transport)
	ctrl := strings.TrimSpace(p.must(t, "ls -d /sys/class/nvme/nvme* | sed 's,.*/,/dev/,'"))
	for _, c := range []struct{ line, text string }{
		{"nvme list", dev},
		{"nvme list-subsys", transport + " traddr=" + lab.HostAddr.String() + ",trsvcid=4420"},
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
	// Every feature of the NVM command set that a fabrics controller has.
	for _, fid := range []int{0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0a, 0x0b, 0x0e, 0x0f} {
		p.want(t, fmt.Sprintf("nvme get-feature %s -f %d", ctrl, fid), fmt.Sprintf("get-feature:0x%02x", fid))
	}
	// What the target doesn't know it refuses, and stays.
	for _, c := range []struct{ line, text string }{
		{"nvme compare " + dev + " -s 6 -c 0 -z 4096 -d /tmp/block 2>&1; true", "Compare Failure"},
		{"nvme read " + dev + " -s 999999999 -c 0 -z 4096 2>&1; true", "LBA Out of Range"},
		{"nvme admin-passthru " + ctrl + " -o 0xc5 2>&1; true", "Invalid Command Opcode"},
		{"nvme get-log " + ctrl + " -i 0x70 -l 64 2>&1; true", "Invalid Log Page"},
	} {
		p.want(t, c.line, c.text)
	}
	p.must(t, "nvme reset "+ctrl)
	p.want(t, "sleep 1; cat /sys/class/nvme/"+filepath.Base(ctrl)+"/state", "live")
	p.disconnect(t)

	// The discovery log names both addresses; nvme-cli leaves out the other transport, and the
	// kernel joins the two paths to one device.
	p.must(t, "nvme connect-all "+where)
	p.want(t, "nvme list-subsys", lab.HostAddr6.String())
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
	// A machine of one processor has a queue each for reads, for writes and for polling.
	sets := [][]string{{"-i", "1"}, {"-i", "1", "-W", "1"}, {"-i", "1", "-W", "1", "-P", "1"}}
	if transport == "tcp" {
		sets = append(sets, []string{"-i", "1", "-g"}, []string{"-i", "1", "-g", "-G"})
	}
	for _, options := range sets {
		dev := p.connect(t, transport, options...)
		p.verify(t, dev, "--size=8m --rw=randrw --bsrange=4k-256k")
		p.verify(t, dev, "--size=4m --rw=write --bs=4k")
		p.disconnect(t)
	}
}

// testDiscard: what the host discards, the file of the volume loses.
func testDiscard(t *testing.T, p *peer, transport, volume string) {
	dev := p.connect(t, transport)
	p.must(t, "dd if=/dev/urandom of="+dev+" bs=1M count=16 oflag=direct")
	full := allocated(t, volume)
	p.must(t, "blkdiscard -f -o 0 -l 8M "+dev)
	if now := allocated(t, volume); now > full-7<<20 {
		t.Errorf("the volume holds %d bytes after a discard of 8 MiB, %d before", now, full)
	}
	p.must(t, "blkdiscard -f -z -o 8M -l 4M "+dev)
	p.must(t, "cmp -n 12582912 "+dev+" /dev/zero")
	p.disconnect(t)
}

// allocated is the space that a file takes.
func allocated(t testing.TB, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
