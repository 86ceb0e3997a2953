package linux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLive changes a target in every way that an operator can, and as hosts themselves can, while each kernel uses it:
// the kernel notices what concerns it, and its I/O continues.
func TestLive(t *testing.T) {
	onKernels(t, "modprobe -a rdma_rxe ib_uverbs rdma_ucm nvme-rdma nvme-tcp", func(t *testing.T, p *peer) {
		for _, transport := range transports {
			t.Run("live/"+transport, func(t *testing.T) { testLive(t, p, transport) })
		}
	})
}

// live is a target whose configuration changes, and the kernel that uses it.
type live struct {
	*peer
	t                    *testing.T
	transport            string
	dir, file, disk, dev string
}

// Names and places of the target.
const (
	liveHost = "nqn.2026-11.io.nvme-anywhere:linux-host"
	livePort = "4421" // of the endpoint that comes and goes
)

func testLive(t *testing.T, p *peer, transport string) {
	l := &live{peer: p, t: t, transport: transport, dir: t.TempDir()}
	l.file, l.disk = filepath.Join(l.dir, "target.yaml"), filepath.Join(l.dir, "disk")
	l.write(1)
	serveConfigured(t, l.file)
	l.dev = p.connect(t, transport, "-q "+liveHost, "-l 20 -c 1")

	done := make(chan error, 1)
	go func() { // it reads back what it writes, through everything that happens
		_, err := p.try(t, ignoreSIGPIPE+"fio --name=live --filename="+l.dev+" --direct=1 --ioengine=libaio --iodepth=8 --bs=16k --size=16m --rw=randwrite"+
			" --verify=crc32c --verify_backlog=64 --time_based --runtime=25 --minimal")
		done <- err
	}()
	l.namespaces()
	l.states()
	l.paths()
	l.ctl("reload")
	if err := <-done; err != nil {
		t.Errorf("I/O did not go on: %v", err)
	}
	l.hostsNamespaces()
	l.erased()
	l.ctl("allow-host", "nqn.2026-11.io.nvme-anywhere:somebody-else")
	l.ctl("forbid-host", liveHost)
	l.eventually("the forbidden host has a controller no more", `[ -z "$(ls /sys/class/nvme)" ]`)
	p.must(t, "dmesg -C") // it complained that it was disconnected
}

// write writes the configuration file, with the given number of namespaces.
func (l *live) write(namespaces int) {
	l.t.Helper()
	text := fmt.Sprintf(`listen: ["%[1]s://%[2]s:4420"]
control: %[3]s/control
state: %[3]s/state
subsystems:
- nqn: %[4]s
  hosts: [%[5]s, nqn.2026-11.io.nvme-anywhere:other]
  create: {directory: %[3]s/volumes, capacity: 256MiB}
  namespaces:
  - {nsid: 1, volume: "%[6]s", size: 64MiB, ana_group: 2}
`, l.transport, hostAddr, l.dir, testNQN, liveHost, l.disk)
	for i := 2; i <= namespaces; i++ {
		text += fmt.Sprintf("  - {nsid: %d, volume: \"mem:%dMiB\"}\n", i, i)
	}
	if err := os.WriteFile(l.file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// serveConfigured is serve with a configuration file.
func serveConfigured(t *testing.T, file string) *server {
	t.Helper()
	s := &server{args: []string{"serve", "--config", file}}
	t.Cleanup(func() { s.stop(t) })
	s.start(t)
	return s
}

// ctl runs nvmetgt ctl.
func (l *live) ctl(args ...string) {
	l.t.Helper()
	out, err := exec.Command(filepath.Join(binDir, "nvmetgt"), append([]string{"ctl", "--socket", filepath.Join(l.dir, "control")}, args...)...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("nvmetgt ctl %v: %v\n%s", args, err, out)
	}
}

// eventually waits until a shell condition holds in the machine.
func (l *live) eventually(what, condition string) {
	l.t.Helper()
	out, err := l.try(l.t, "for i in $(seq 150); do if "+condition+"; then exit 0; fi; sleep 0.2; done; nvme list-subsys; ls -l /sys/class/nvme/ /dev/nvme*; exit 1")
	if err != nil {
		l.t.Fatalf("%s: not within 30 s\n%s", what, out)
	}
}

// sized is the condition that a namespace has this many MiB; 0 means that it doesn't exist. The paths to a namespace
// have its NSID in sysfs.
func (l *live) sized(nsid, mib int) string {
	if mib == 0 {
		return fmt.Sprintf("! grep -qx %d /sys/class/nvme/nvme*/nvme*n*/nsid", nsid)
	}
	return fmt.Sprintf("for f in $(grep -lx %d /sys/class/nvme/nvme*/nvme*n*/nsid); do [ $(cat $(dirname $f)/size) = %d ] && break; done", nsid, mib*2048)
}

// namespaces come, go and grow.
func (l *live) namespaces() {
	l.ctl("add-namespace", "--volume", "mem:8MiB", "--nsid", "9")
	l.eventually("the namespace that was added is there", l.sized(9, 8))
	l.ctl("remove-namespace", "--nsid", "9")
	l.eventually("the namespace that was removed is gone", l.sized(9, 0))
	if err := os.Truncate(l.disk, 80<<20); err != nil {
		l.t.Fatal(err)
	}
	l.eventually("the namespace has grown", l.sized(1, 80))
	l.write(2)
	l.ctl("reload")
	l.eventually("the namespace of the file that was reloaded is there", l.sized(2, 2))
}

// states of ANA groups change.
func (l *live) states() {
	at := fmt.Sprintf("--listen=%s://%s:4420", l.transport, hostAddr)
	for _, state := range []string{"non-optimized", "optimized"} {
		l.ctl("set-ana", "2", state, at)
		l.eventually("the kernel knows that the group is "+state, "grep -qx "+state+" /sys/class/nvme/nvme*/nvme*c*n1/ana_state")
	}
}

// paths come and go: an endpoint is added, the kernel uses it while the other is unavailable, and it is removed again.
func (l *live) paths() {
	more := fmt.Sprintf("%s://%s:%s", l.transport, hostAddr, livePort)
	l.ctl("listen", more)
	l.must(l.t, fmt.Sprintf("nvme connect -t %s -a %s -s %s -n %s -q %s -l 20 -c 1", l.transport, hostAddr, livePort, testNQN, liveHost))
	l.eventually("there are two paths", "[ $(ls -d /sys/class/nvme/nvme*/nvme*c*n1 | wc -l) = 2 ]")
	at := fmt.Sprintf("--listen=%s://%s:4420", l.transport, hostAddr)
	l.ctl("set-ana", "2", "inaccessible", at)
	l.eventually("one path is inaccessible", "grep -qx inaccessible /sys/class/nvme/nvme*/nvme*c*n1/ana_state")
	l.must(l.t, "dd if="+l.dev+" of=/dev/null bs=4k count=64 iflag=direct")
	l.ctl("set-ana", "2", "optimized", at)
	l.eventually("no path is inaccessible", "! grep -qx inaccessible /sys/class/nvme/nvme*/nvme*c*n1/ana_state")
	l.ctl("unlisten", more)
	l.must(l.t, "dd if="+l.dev+" of=/dev/null bs=4k count=64 iflag=direct")
	l.must(l.t, fmt.Sprintf("for c in /sys/class/nvme/nvme*; do grep -q trsvcid=%s $c/address && nvme disconnect -d ${c##*/}; done; true", livePort))
	l.eventually("there is one path", "[ $(ls -d /sys/class/nvme/nvme*/nvme*c*n1 | wc -l) = 1 ]")
}

// hostsNamespaces: the kernel's host creates a namespace, attaches it, uses it and deletes it.
func (l *live) hostsNamespaces() {
	ctrl := strings.TrimSpace(l.must(l.t, "ls -d /sys/class/nvme/nvme*"))
	dev := "/dev/" + filepath.Base(ctrl)
	l.want(l.t, "nvme create-ns "+dev+" --nsze=4096 --ncap=4096 --flbas=0 --nmic=1", "513")
	l.want(l.t, "nvme list-ns -a "+dev, "0x201")
	l.must(l.t, "nvme attach-ns "+dev+" -n 513 -c $(cat "+ctrl+"/cntlid) && nvme ns-rescan "+dev)
	l.eventually("the namespace that the host created is there", l.sized(513, 16))
	l.want(l.t, "nvme list-ctrl "+dev+" -n 513", "0x")
	l.must(l.t, "nvme delete-ns "+dev+" -n 513")
	l.eventually("the namespace that the host deleted is gone", l.sized(513, 0))
}

// erased: the kernel's host sanitizes, and nvme-cli reads the logs about it.
func (l *live) erased() {
	ctrl := "/dev/" + filepath.Base(strings.TrimSpace(l.must(l.t, "ls -d /sys/class/nvme/nvme*")))
	l.must(l.t, "nvme sanitize "+ctrl+" -a 2")
	l.eventually("the sanitize operation is done", "nvme sanitize-log "+ctrl+" | grep -q 'SSTAT.*0x1'")
	l.must(l.t, "dd if="+l.dev+" bs=1M count=16 iflag=direct 2>/dev/null | tr -d '\\0' | wc -c | grep -qx 0")
	l.want(l.t, "nvme persistent-event-log "+ctrl+" -a 1 -l 4096", "anitize")
	l.must(l.t, "nvme persistent-event-log "+ctrl+" -a 2 -l 512")
}
