package linux

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// export makes the kernel's target export a device of 64 MiB in memory, and removes it when the test ends.
func (p *peer) export(t testing.TB, transport string) {
	t.Helper()
	p.must(t, fmt.Sprintf(`set -e
		d=/sys/kernel/config/nullb/lab; mkdir $d
		echo 512 > $d/blocksize; echo 64 > $d/size; echo 1 > $d/memory_backed; echo 1 > $d/discard; echo 1 > $d/power
		dev=/dev/lab; [ -b $dev ] || dev=/dev/nullb$(cat $d/index)
		cd /sys/kernel/config/nvmet; s=subsystems/%[1]s; mkdir $s
		echo 1 > $s/attr_allow_any_host; mkdir $s/namespaces/1
		echo $dev > $s/namespaces/1/device_path; echo 1 > $s/namespaces/1/enable
		port() {
			mkdir ports/$1; echo %[2]s > ports/$1/addr_trtype; echo $2 > ports/$1/addr_adrfam
			echo $3 > ports/$1/addr_traddr; echo 4420 > ports/$1/addr_trsvcid
			ln -s $PWD/$s ports/$1/subsystems/
		}
		port 1 ipv4 %[3]s; port 2 ipv6 %[4]s`, testNQN, transport, p.Addr, p.Addr6))
	t.Cleanup(func() {
		p.must(t, fmt.Sprintf(`set -e
			cd /sys/kernel/config/nvmet; rm ports/*/subsystems/%[1]s; rmdir ports/*
			echo 0 > subsystems/%[1]s/namespaces/1/enable; rmdir subsystems/%[1]s/namespaces/1 subsystems/%[1]s
			rmdir /sys/kernel/config/nullb/lab`, testNQN))
	})
}

// testTarget: nvmeinit uses the kernel's target.
func testTarget(t *testing.T, p *peer, transport string) {
	p.export(t, transport)
	to := []string{"-t", transport, "-a", p.Addr.String(), "-s", "4420"}
	run := func(verb string, args ...string) string {
		t.Helper()
		out, stderr, code := nvmeinit(t, append(append([]string{verb}, to...), args...)...)
		if code != 0 {
			t.Errorf("nvmeinit %s %v: exit code %d: %s", verb, args, code, stderr)
		}
		return out
	}
	want := func(out, text string) {
		t.Helper()
		if !strings.Contains(out, text) {
			t.Errorf("no %q in:\n%s", text, out)
		}
	}
	n := []string{"-n", testNQN}
	want(run("discover"), testNQN)
	want(run("connect", n...), "Linux")
	want(run("connect", "-n", testNQN, "-i", "3", "-Q", "32"), "3 of 32 entries")
	want(run("id-ctrl", n...), "Linux")
	want(run("id-ns", n...), "nsze")
	want(run("list", n...), "64 MiB")
	run("smart-log", n...)

	data := make([]byte, 8<<20+4096)
	_, _ = rand.Read(data)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, data, 0o600); err != nil {
		t.Fatal(err)
	}
	sets := [][]string{nil}
	if transport == "tcp" {
		sets = append(sets, []string{"-g", "-G"})
	}
	for _, options := range sets {
		_ = os.Remove(out)
		options = append(options, n...)
		run("write", append(options, "--nsid", "1", "--input", in, "--verify")...)
		run("flush", append(options, "--nsid", "1")...)
		run("read", append(options, "--nsid", "1", "--length", fmt.Sprint(len(data)), "--output", out)...)
		if got, _ := os.ReadFile(out); !bytes.Equal(got, data) {
			t.Error("what was read is not what was written")
		}
	}
	for _, rw := range []string{"randread", "randwrite", "randrw"} {
		for _, bs := range []string{"4k", "128k"} {
			want(run("bench", "-n", testNQN, "--rw", rw, "--bs", bs, "--iodepth", "16", "--runtime", "1s"), "IOPS")
		}
	}
	// This little data is sent with its command if several leave together.
	want(run("bench", "-n", testNQN, "--rw", "randwrite", "--bs", "512", "--iodepth", "16", "--size", "1m", "--verify", "crc32c"), "IOPS")
	if p.Image.Version != "5.10" { // it doesn't export zones
		p.zoned(t, to)
	}
	p.noControllers(t)
	p.quiet(t)
	p.refuses(t, transport)
}

// zoned: a zoned namespace can't be used, but nvmeinit shows what it is, and the others are there.
func (p *peer) zoned(t *testing.T, to []string) {
	t.Helper()
	p.must(t, fmt.Sprintf(`set -e
		d=/sys/kernel/config/nullb/zoned; mkdir $d; echo 1 > $d/zoned; echo 1 > $d/memory_backed
		echo 4 > $d/zone_size; echo 16 > $d/size; echo 4096 > $d/blocksize; echo 1 > $d/power
		dev=/dev/zoned; [ -b $dev ] || dev=/dev/nullb$(cat $d/index)
		n=/sys/kernel/config/nvmet/subsystems/%s/namespaces/2; mkdir $n; echo $dev > $n/device_path; echo 1 > $n/enable`, testNQN))
	t.Cleanup(func() {
		p.must(t, fmt.Sprintf(`n=/sys/kernel/config/nvmet/subsystems/%s/namespaces/2; echo 0 > $n/enable; rmdir $n /sys/kernel/config/nullb/zoned`, testNQN))
	})
	to = append(to, "-n", testNQN)
	for verb, text := range map[string]string{"id-ns": "nsze", "ns-descs": "0x2"} {
		out, stderr, code := nvmeinit(t, append([]string{verb, "--nsid", "2"}, to...)...)
		if code != 0 || !strings.Contains(out, text) {
			t.Errorf("nvmeinit %s of a zoned namespace: exit code %d: %s%s", verb, code, out, stderr)
		}
	}
	for _, verb := range []string{"list", "connect"} {
		out, stderr, code := nvmeinit(t, append([]string{verb}, to...)...)
		if code == 0 || !strings.Contains(stderr, "namespace 2: unusable namespace: command set 2") || !strings.Contains(out, "64 MiB") {
			t.Errorf("nvmeinit %s beside a zoned namespace: exit code %d: %s%s", verb, code, out, stderr)
		}
	}
}

// testTarget6 is the same over IPv6.
func testTarget6(t *testing.T, p *peer, transport string) {
	p.export(t, transport)
	out, stderr, code := nvmeinit(t, "bench", "-t", transport, "-a", p.Addr6.String(), "-n", testNQN,
		"--rw", "randrw", "--bs", "64k", "--iodepth", "16", "--runtime", "1s")
	if code != 0 || !strings.Contains(out, "IOPS") {
		t.Errorf("nvmeinit bench: exit code %d: %s%s", code, out, stderr)
	}
	p.noControllers(t)
	p.quiet(t)
}

// refuses: nvmeinit explains what the kernel's target refuses.
func (p *peer) refuses(t *testing.T, transport string) {
	t.Helper()
	for _, c := range []struct{ port, nqn, text string }{
		{"4420", testNQN + ".not", "has no subsystem"},
		{"4499", testNQN, "4499"},
	} {
		_, stderr, code := nvmeinit(t, "connect", "-t", transport, "-a", p.Addr.String(), "-s", c.port, "-n", c.nqn)
		if code == 0 || !strings.Contains(stderr, c.text) {
			t.Errorf("connect to port %s, %s: exit code %d, no %q in: %s", c.port, c.nqn, code, c.text, stderr)
		}
	}
	p.want(t, "dmesg -c", "connect request for invalid subsystem "+testNQN+".not")
	p.must(t, "echo 0 > /sys/kernel/config/nvmet/subsystems/"+testNQN+"/attr_allow_any_host")
	_, stderr, code := nvmeinit(t, "connect", "-t", transport, "-a", p.Addr.String(), "-n", testNQN)
	if code == 0 || !strings.Contains(stderr, "doesn't admit host") {
		t.Errorf("a host that isn't allowed: exit code %d: %s", code, stderr)
	}
	p.must(t, "dmesg -C")
}

// noControllers fails the test if the kernel's target still has a queue of ours: it creates and frees a controller for
// each connection, and reports if a keep alive timer ends one.
func (p *peer) noControllers(t testing.TB) {
	t.Helper()
	if out := p.must(t, "dmesg | grep -E 'keep-alive timer|fatal error' || true"); out != "" {
		t.Errorf("the target lost a controller that nvmeinit didn't end:\n%s", out)
	}
}
