package tests

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// container runs programs as a container FROM scratch does: in an empty file system that they can't write, without
// /proc, /sys, /dev, /etc and /tmp, without environment, as the first process, and as a user without privileges. Only
// /data is theirs. The network is the host's.
type container struct{ root string }

func newContainer(t *testing.T) *container {
	t.Helper()
	if os.Getenv(raceEnv) == "1" {
		t.Skip("programs with the race detector need libraries")
	}
	if err := buildPrograms(); err != nil {
		t.Fatal(err)
	}
	c := &container{t.TempDir()}
	for _, name := range []string{"nvmetgt", "nvmeinit"} {
		if err := os.Link(filepath.Join(binDir, name), filepath.Join(c.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(c.root, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.root, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(c.root, 0o755) }) // so that it can be removed
	try := exec.Command("/nvmetgt", "--version")
	c.contain(try)
	if err := try.Start(); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the program needs another one to be started: %v", err)
	} else if err != nil {
		t.Skipf("no namespaces here: %v", err)
	}
	if err := try.Wait(); err != nil {
		t.Fatal(err)
	}
	return c
}

// contain has a command, whose path is that in the container, run there.
func (c *container) contain(cmd *exec.Cmd) {
	const nobody = 65534
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:      c.root,
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}},
	}
}

func (c *container) start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := newProgram(t, name, args...)
	p.cmd.Path = "/" + name
	c.contain(p.cmd)
	p.launch(t, starting)
	return p
}

// serve starts a target with a file as its volume.
func (c *container) serve(t *testing.T, addr netip.Addr) *targetProgram {
	t.Helper()
	p := c.start(t, "nvmetgt", append([]string{"serve", "--volume", "/data/disk.img", "--size", "16MiB",
		"--state", "/data/state", "--control", "/data/control"}, serveFlags(addr)...)...)
	p.awaitReady(t)
	return &targetProgram{p, addr}
}

// run runs a program to its end, which must have the exit code.
func (c *container) run(t *testing.T, code int, name string, args ...string) result {
	t.Helper()
	r := c.start(t, name, args...).result(t, cliTimeout)
	if r.code != code {
		t.Fatalf("%s %v: exit code %d, want %d: %s", name, args, r.code, code, r.stderr)
	}
	return r
}

// TestContainer: both programs work in a container with nothing in it but them, the target as its first process; it ends
// at SIGTERM, and the next one finds what it stored. Hosts there have no name that lasts, so they can't reserve anything
// without being told one.
func TestContainer(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	addr := freeAddr(t)
	tgt := c.serve(t, addr)
	for _, transport := range transports {
		c.run(t, 0, "nvmeinit", append([]string{"bench", "--rw", "randrw", "--iodepth", "8", "--number_ios", "1000", "--verify", "crc32c"},
			tgt.to(transport)...)...)
	}
	c.run(t, 0, "nvmetgt", "ctl", "--socket", "/data/control", "show")

	register := append([]string{"resv-register", "--nrkey", "0x77", "--cptpl", "3"}, tgt.to("tcp")...)
	report := append([]string{"resv-report"}, tgt.to("tcp")...)
	for _, args := range [][]string{{"show-hostnqn"}, register} {
		if r := c.run(t, 1, "nvmeinit", args...); r.stdout != "" || !strings.Contains(r.stderr, "/etc/machine-id") || !strings.Contains(r.stderr, "-q and -I") {
			t.Errorf("%s, without a name: %s%s", args[0], r.stdout, r.stderr)
		}
	}
	if r := c.run(t, 0, "nvmeinit", report...); !strings.Contains(r.stdout, "nobody has registered") {
		t.Errorf("a host without a name has registered:\n%s", r.stdout)
	}
	id := nvme.NewHostID()
	c.run(t, 0, "nvmeinit", append(register, "-q", id.NQN(), "-I", id.String())...)

	tgt.stop(t)
	tgt = c.serve(t, addr)
	if r := c.run(t, 0, "nvmeinit", report...); !strings.Contains(r.stdout, id.String()) {
		t.Errorf("after a restart host %s isn't registered any more:\n%s", id, r.stdout)
	}
	tgt.stop(t)
	if found, err := filepath.Glob(filepath.Join(c.root, "*")); err != nil || len(found) != 3 {
		t.Errorf("in the container are %v, %v", found, err)
	}
}
