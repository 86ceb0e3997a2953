package tests

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Exit codes of both programs, as their help has them.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// cliTimeout is far more than a wrong command line takes.
const cliTimeout = 20 * time.Second

// mistake is a command line that can't work: the exit code, and what the one line on standard error must contain.
type mistake struct {
	args []string
	code int
	says []string
}

func args(line string) []string { return strings.Fields(line) }

// check runs each mistake.
func check(t *testing.T, program string, mistakes []mistake) {
	t.Helper()
	for _, m := range mistakes {
		t.Run(strings.ReplaceAll(strings.Join(m.args, " "), "/", "∕"), func(t *testing.T) {
			checkLine(t, start(t, program, m.args...).result(t, cliTimeout), program, m)
		})
	}
}

// checkLine asserts the exit code and that the program wrote one line, which names the
// program once and says what it must.
func checkLine(t *testing.T, r result, program string, m mistake) {
	t.Helper()
	if r.code != m.code {
		t.Errorf("exit code %d, want %d", r.code, m.code)
	}
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	if len(lines) != 1 || !strings.HasSuffix(r.stderr, "\n") {
		t.Errorf("standard error is not one line:\n%s", r.stderr)
	}
	text, ok := strings.CutPrefix(lines[len(lines)-1], program+": ")
	if !ok || strings.HasPrefix(text, program) || strings.Contains(text, "nvme: ") || strings.Contains(text, "%!") {
		t.Errorf("not a clean line: %q", lines[len(lines)-1])
	}
	if strings.Contains(text, "deadline exceeded") || strings.Count(text, ": ") > 5 || len(text) > 320 {
		t.Errorf("not a text for people: %q", text)
	}
	for _, s := range m.says {
		if !strings.Contains(text, s) {
			t.Errorf("%q doesn't say %q", text, s)
		}
	}
	if r.stdout != "" {
		t.Errorf("standard output has %q", r.stdout)
	}
}

// makeFile makes a file of zeroes.
func makeFile(t *testing.T, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTargetFlags(t *testing.T) {
	t.Parallel()
	check(t, "nvmetgt", []mistake{
		{args("--bogus"), exitUsage, []string{"unknown flag: --bogus", "nvmetgt --help"}},
		{args("bogus"), exitUsage, []string{`no command "bogus"`, "nvmetgt --help"}},
		{args("serve"), exitUsage, []string{"nothing to export", "--volume disk.img --size 1GiB"}},
		{args("serve mem:1MiB"), exitUsage, []string{"flags only", "mem:1MiB", "serve --help"}},
		{args("serve --bogus"), exitUsage, []string{"unknown flag: --bogus", "nvmetgt serve --help"}},
		{args("serve --volume"), exitUsage, []string{"needs an argument", "--volume"}},
		{args("serve --volume mem:1MiB --log-level loud"), exitUsage, []string{"--log-level", "loud", "debug, info, warn or error"}},
		{args("serve --volume mem:1MiB --nqn disk1"), exitUsage, []string{"--nqn", `"disk1"`, "nqn.", "example"}},
		{args("serve --volume mem:1MiB --nqn nqn.disk1"), exitUsage, []string{"--nqn", "year and month"}},
		{args("serve --volume mem:1MiB --nqn nqn.2026-11.org.example:" + strings.Repeat("x", 201)), exitUsage, []string{"--nqn", "the limit is 223"}},
		{args("serve --volume mem:1MiB --allow-host me"), exitUsage, []string{"--allow-host", `"me"`}},
		{append(args("serve --volume mem:1MiB --dhchap-secrets"), ""), exitUsage, []string{"--dhchap-secrets", "it is empty"}},
		{args("serve --volume mem:1MiB --serial 123456789012345678901"), exitUsage, []string{"--serial", "21 bytes", "20"}},
		{args("serve --volume mem:1000"), exitUsage, []string{"--volume mem:1000", "not a multiple of the block size 4096"}},
		{args("serve --volume mem:lots"), exitUsage, []string{"--volume mem:lots", "64MiB"}},
		{args("serve --volume mem:"), exitUsage, []string{"needs a size", "mem:1GiB"}},
		{args("serve --volume ssd:1GiB"), exitUsage, []string{`"ssd"`, "mem:SIZE", "pmem:PATH"}},
		{args("serve --volume mem:1MiB --size 2MiB"), exitUsage, []string{"--size 2.0 MiB", "mem:SIZE"}},
		{args("serve --volume mem:1MiB --preallocate"), exitUsage, []string{"--preallocate", "mem:SIZE"}},
		{args("serve --volume pmem:x.img,foo=1 --size 8MiB"), exitUsage, []string{`"foo=1"`, "mode=inplace"}},
		{args("serve --volume pmem:x.img,mode=fast --size 8MiB"), exitUsage, []string{`"mode=fast"`, "mode=inplace"}},
		{args("serve --volume mem:1MiB --dscp -1"), exitUsage, []string{"--dscp -1", "0 to 63"}},
		{args("serve --volume mem:1MiB --listen tcp://224.0.0.1"), exitUsage, []string{"--listen", "multicast"}},
		{args("serve --volume mem:1MiB --listen rdma://fe80::1"), exitUsage, []string{"--listen", "fe80::1%eth0"}},
		{args("help bogus"), exitUsage, []string{`no command "bogus"`, "serve"}},
		{args("bogus --help"), exitUsage, []string{`no command "bogus"`, "serve"}},
		{args("ctl bogus --help"), exitUsage, []string{`no command "bogus"`, "add-namespace", "ctl --help"}},
		{args("serv"), exitUsage, []string{"is serve meant?"}},
		{args("pmem check /nowhere"), exitFailure, []string{"pmem check /nowhere", "no such file", "--size"}},
		{args("pmem format --yes --block-size 1000 /nowhere"), exitUsage, []string{"--block-size", "block size 1000", "power of two"}},
		{args("serve --volume mem:1MiB --block-size 1000"), exitUsage, []string{"block size 1000", "power of two"}},
		{args("serve --volume disk.img --size 1x"), exitUsage, []string{"--size", `"1x"`, "64MiB"}},
		{args("serve --volume mem:1MiB --max-controllers -1"), exitUsage, []string{"--max-controllers -1", "1 or more"}},
		{args("serve --volume mem:1MiB --in-capsule 3"), exitUsage, []string{"--in-capsule 3", "multiple of 16"}},
		{args("serve --volume mem:1MiB --queue-depth 7"), exitUsage, []string{"--queue-depth 7", "32 to 1024"}},
		{args("serve --volume mem:1MiB --max-connections 0"), exitUsage, []string{"--max-connections 0", "1 to 65536"}},
		{args("serve --volume mem:1MiB --max-host-connections 0"), exitUsage, []string{"--max-host-connections 0", "1 to 65536"}},
		{args("serve --volume mem:1MiB --max-queues 2000"), exitUsage, []string{"--max-queues 2000", "1 to 1024"}},
		{args("serve --volume mem:1MiB --queue-depth 0"), exitUsage, []string{"--queue-depth 0", "32 to 1024"}},
		{args("serve --volume mem:1MiB --engines 0"), exitUsage, []string{"--engines 0", "1 to 8"}},
		{args("serve --volume mem:1MiB --memory 0"), exitUsage, []string{"--memory 0", "8.0 MiB to 256 GiB"}},
		{args("serve --volume mem:1MiB --memory 1MiB"), exitUsage, []string{"--memory", "8.0 MiB"}},
		{args("serve --volume mem:1MiB --busy-poll soon"), exitUsage, []string{"--busy-poll", `"soon"`, "500ms"}},
		{args("serve --volume mem:1MiB --busy-poll 1h"), exitUsage, []string{"--busy-poll", "10s"}},
		{args("serve --volume mem:1MiB --listen 127.0.0.1:4420"), exitUsage, []string{"--listen", "rdma://", "tcp://"}},
		{args("serve --volume mem:1MiB --listen udp://127.0.0.1:4420"), exitUsage, []string{"--listen", `"udp"`, "rdma or tcp"}},
		{args("serve --volume mem:1MiB --listen tcp://localhost:4420"), exitUsage, []string{"--listen", `"localhost"`, "IP address"}},
		{args("serve --volume mem:1MiB --listen tcp://127.0.0.1:70000"), exitUsage, []string{"--listen", `"70000"`, "65535"}},
		{args("serve --volume mem:1MiB --listen tcp://127.0.0.1 --listen tcp://127.0.0.1:4420"), exitUsage, []string{"--listen", "twice"}},
		{args("serve --volume mem:1MiB --listen rdma://192.0.2.1"), exitFailure, []string{"--listen rdma://192.0.2.1:4420", "not an address of this host", "ip address"}},
		{args("serve --volume mem:1MiB --listen tcp://[fe80::1%nosuch]"), exitFailure, []string{"--listen fe80::1%nosuch", `no interface "nosuch"`, "ip link"}},
		{args("serve --volume mem:1MiB --listen rdma://[fe80::1%nosuch]"), exitFailure, []string{"--listen fe80::1%nosuch", `no interface "nosuch"`, "ip link"}},
		{args("serve --volume mem:1MiB --listen tcp://192.0.2.1"), exitFailure, []string{"--listen tcp://192.0.2.1:4420", "not an address of this host", "ip address"}},
	})
}

func TestInitiatorFlags(t *testing.T) {
	t.Parallel()
	check(t, "nvmeinit", []mistake{
		{args("--bogus"), exitUsage, []string{"unknown flag: --bogus", "nvmeinit --help"}},
		{args("download"), exitUsage, []string{`no command "download"`, "nvmeinit --help"}},
		{args("fw-download"), exitUsage, []string{`no command "fw-download"`, "gets its firmware there"}},
		{args("connect --bogus"), exitUsage, []string{"unknown flag: --bogus", "nvmeinit connect --help"}},
		{args("connect --dhchap-secret DHHC-1:00"), exitUsage, []string{"unknown flag: --dhchap-secret", "is --dhchap-secret-file meant?"}},
		{append(args("connect --dhchap-ctrl-secret-file"), ""), exitUsage, []string{"--dhchap-ctrl-secret-file", "it is empty"}},
		{args("id-ns --namespace-id one"), exitUsage, []string{"--nsid", `"one"`}},
		{args("id-ns -t tcp -a 127.0.0.1 -n 1"), exitUsage, []string{"-n 1", "NQN", "is --nsid 1 meant?"}},
		{args("connect rdma"), exitUsage, []string{"flags only", `"rdma"`}},
		{args("connect"), exitUsage, []string{"-t", "rdma or tcp"}},
		{args("connect -t rdma"), exitUsage, []string{"-a", "127.0.0.1"}},
		{args("connect -t fc -a 127.0.0.1"), exitUsage, []string{"-t", `"fc"`, "not supported", "rdma or tcp"}},
		{args("connect -t tcp -a 127.0.0.256"), exitUsage, []string{"-a", `"127.0.0.256"`, "IP address"}},
		{args("connect -t tcp -a no!host"), exitUsage, []string{"-a no!host", "no such host", "IP address"}},
		{args("discover -t tcp -a localhost -s 1"), exitFailure, []string{"tcp://127.0.0.1:1", "connection refused"}},
		{args("bench -t tcp -a localhost -s 1 --path tcp://127.0.0.1:2"), exitFailure, []string{"tcp://127.0.0.1:1", "connection refused"}},
		{args("connect -t tcp -a 127.0.0.1 -s nvme"), exitUsage, []string{"-s", `"nvme"`, "65535"}},
		{args("connect -t tcp -a 127.0.0.1 -w here"), exitUsage, []string{"-w", `"here"`, "IP address"}},
		{args("connect -t tcp -a 127.0.0.1 -w ::1"), exitUsage, []string{"-w ::1", "-a 127.0.0.1", "IPv6"}},
		{args("connect -t tcp -a 127.0.0.1 -w 192.0.2.7 -n nqn.2026-11.org.example:x"), exitFailure, []string{"-w 192.0.2.7", "not an address of this host"}},
		{args("connect -t tcp -a fe80::1%nosuch"), exitFailure, []string{"-a fe80::1%nosuch", `no interface "nosuch"`, "ip link"}},
		{args("discover -t rdma -a fe80::1%nosuch"), exitFailure, []string{"-a fe80::1%nosuch", `no interface "nosuch"`, "ip link"}},
		{args("connect -t rdma -a 127.0.0.1 -w 192.0.2.7"), exitFailure, []string{"-w 192.0.2.7", "not an address of this host"}},
		{append(args("connect -t tcp -a 127.0.0.1 -n"), "my disk"), exitUsage, []string{"-n", `"my disk"`, "space"}},
		{args("connect -t tcp -a 127.0.0.1 -q me"), exitUsage, []string{"-q", `"me"`, "nqn."}},
		{args("connect -t tcp -a 127.0.0.1 -I 12"), exitUsage, []string{"--hostid", `"12"`, "UUID"}},
		{args("connect -t tcp -a 127.0.0.1 --hostid 00000000-0000-0000-0000-000000000000"), exitUsage, []string{"--hostid", "names nobody"}},
		{args("connect -t tcp -a 127.0.0.1 -o xml"), exitUsage, []string{"-o", `"xml"`, "normal or json"}},
		{args("connect -t tcp -a 127.0.0.1 -i many"), exitUsage, []string{"--nr-io-queues", `"many"`, "number"}},
		{args("connect -t tcp -a 127.0.0.1 -i -1"), exitUsage, []string{"-i -1", "65534"}},
		{args("connect -t tcp -a 127.0.0.1 -Q 1"), exitUsage, []string{"-Q 1", "65536"}},
		{args("connect -t tcp -a 127.0.0.1 -k -1"), exitUsage, []string{"-k -1", "seconds"}},
		{args("connect -t tcp -a 127.0.0.1 --timeout 0s"), exitUsage, []string{"--timeout", "positive"}},
		{args("connect -t rdma -a 127.0.0.1 -g"), exitUsage, []string{"-g", "NVMe/TCP", "ICRC"}},
		{args("bench -t tcp -a 127.0.0.1 --rw reed"), exitUsage, []string{"--rw=reed", "randwrite"}},
		{args("bench -t tcp -a 127.0.0.1 --bs 4kk"), exitUsage, []string{"--bs", `"4kk"`}},
		{args("bench -t tcp -a 127.0.0.1 --iodepth 0"), exitUsage, []string{"--iodepth=0", "at least 1"}},
		{args("bench -t tcp -a 127.0.0.1 --rwmixread 101"), exitUsage, []string{"--rwmixread=101", "100 percent"}},
		{args("bench -t tcp -a 127.0.0.1 --runtime -1s"), exitUsage, []string{"--runtime", `"-1s"`, "positive"}},
		{args("bench -t tcp -a 127.0.0.1 --time_based"), exitUsage, []string{"--time_based", "--runtime"}},
		{args("connect -t tcp -a 0.0.0.0"), exitUsage, []string{"-a 0.0.0.0", "listens on"}},
		{args("connect -t rdma -a 224.0.0.1"), exitUsage, []string{"-a", "multicast"}},
		{args("id-ns -t tcp -a 127.0.0.1 --nsid 4294967296"), exitUsage, []string{"--nsid", "4294967295"}},
		{args("get-feature -t tcp -a 127.0.0.1 --sel 4"), exitUsage, []string{"--sel 4", "0 to 3"}},
		{args("get-feature -t tcp -a 127.0.0.1 -f 256"), exitUsage, []string{"--feature-id", `"256"`, "0 to 255"}},
		{args("set-feature -t tcp -a 127.0.0.1 -f 0x84"), exitUsage, []string{"no --value", "set-feature --help"}},
		{args("get-log -t tcp -a 127.0.0.1 --log-len 64"), exitUsage, []string{"no --log-id", "get-log --help"}},
		{args("get-log -t tcp -a 127.0.0.1 --log-id 2"), exitUsage, []string{"no --log-len", "get-log --help"}},
		{args("get-log -t tcp -a 127.0.0.1 --log-id 2 --log-len 63"), exitUsage, []string{"--log-len 63", "multiple of 4"}},
		{args("get-log -t tcp -a 127.0.0.1 --log-id 2 --log-len 64 --lpo 2"), exitUsage, []string{"--lpo 2", "multiple of 4"}},
		{args("get-log -t tcp -a 127.0.0.1 --log-id 2 --log-len 64 --lsp 128"), exitUsage, []string{"--lsp 128", "0 to 127"}},
		{args("admin-passthru -t tcp -a 127.0.0.1"), exitUsage, []string{"no --opcode", "admin-passthru --help"}},
		{args("admin-passthru -t tcp -a 127.0.0.1 --opcode 0x7f"), exitUsage, []string{"--opcode 0x7f", "connection's own"}},
		{args("io-passthru -t tcp -a 127.0.0.1 --opcode 0x83"), exitUsage, []string{"--opcode 0x83", "both ways"}},
		{args("io-passthru -t tcp -a 127.0.0.1 --opcode 0 --data-len 512"), exitUsage, []string{"--data-len 512", "moves no data"}},
		{args("io-passthru -t tcp -a 127.0.0.1 --opcode 1 --data-len 512 --read"), exitUsage, []string{"--read", "brings no data"}},
		{args("io-passthru -t tcp -a 127.0.0.1 --opcode 2 --data-len 512 --write"), exitUsage, []string{"--write", "sends no data"}},
		{args("io-passthru -t tcp -a 127.0.0.1 --opcode 2 --data-len 512 --input-file x"), exitUsage, []string{"--input-file", "sends no data"}},
		{args("resv-register -t tcp -a 127.0.0.1 --cptpl 1"), exitUsage, []string{"--cptpl 1", "0, 2 or 3"}},
		{args("resv-register -t tcp -a 127.0.0.1 --rrega 3"), exitUsage, []string{"--rrega 3", "0 to 2"}},
		{args("resv-register -t tcp -a 127.0.0.1 --nrkey key"), exitUsage, []string{"--nrkey", `"key"`, "0x1234"}},
		{args("resv-acquire -t tcp -a 127.0.0.1 --rtype 7"), exitUsage, []string{"--rtype 7", "1 to 6"}},
		{args("resv-register -t tcp -a 127.0.0.1"), exitUsage, []string{"no --nrkey given", "as --nrkey 0x1234"}},
		{args("resv-release -t tcp -a 127.0.0.1 --crkey 1"), exitUsage, []string{"--rtype 0", "1 to 6"}},
		{args("discard -t tcp -a 127.0.0.1 --offset 0"), exitUsage, []string{"no --length", "discard --help"}},
		{args("discard -t tcp -a 127.0.0.1 --length 1m"), exitUsage, []string{"no --offset", "discard --help"}},
		{args("write-zeroes -t tcp -a 127.0.0.1 --offset 0 --length 0"), exitUsage, []string{"--length 0", "one block"}},
		{args("copy -t tcp -a 127.0.0.1 --offset 0 --length 4k"), exitUsage, []string{"no --to", "copy --help"}},
		{args("compare -t tcp -a 127.0.0.1 --length 0"), exitUsage, []string{"--length 0", "one block"}},
		{args("create-ns -t tcp -a 127.0.0.1"), exitUsage, []string{"--size", "--nsze"}},
		{args("create-ns -t tcp -a 127.0.0.1 --size 1MiB --block-size 1000"), exitUsage, []string{"--block-size 1000", "power of two"}},
		{args("create-ns -t tcp -a 127.0.0.1 --size 1MiB --block-size 512 --flbas 1"), exitUsage, []string{"--flbas and --block-size"}},
		{args("create-ns -t tcp -a 127.0.0.1 --nsze 0"), exitUsage, []string{"no blocks"}},
		{args("attach-ns -t tcp -a 127.0.0.1"), exitUsage, []string{"no --nsid", "attach-ns --help"}},
		{args("attach-ns -t tcp -a 127.0.0.1 --nsid 1 --controllers x"), exitUsage, []string{"--controllers", "1,4,16"}},
		{args("show-rags -t tcp -a 127.0.0.1"), exitUsage, []string{`no command "show-rags"`, "is show-regs meant?"}},
		{args("error-log -t tcp -a 127.0.0.1 -e 0"), exitUsage, []string{"--log-entries 0", "1 or more"}},
		{args("bench -t tcp -a 127.0.0.1 --depths 1,x"), exitUsage, []string{"--depths", "1,4,16"}},
		{args("bench -t tcp -a 127.0.0.1 --metrics x"), exitUsage, []string{"--metrics", "ADDRESS:PORT"}},
		{args("connect -t rdma -a 127.0.0.1 --dscp 64"), exitUsage, []string{"--dscp 64", "0 to 63"}},
		{args("connect -t tcp -a 127.0.0.1 --priority 7"), exitUsage, []string{"--priority 7", "to 6"}},
		{args("connect -t tcp -a 127.0.0.1 --busy-poll -1s"), exitUsage, []string{"--busy-poll -1s", "10s"}},
		{args("write -t tcp -a 127.0.0.1 --input /nowhere/file"), exitFailure, []string{"--input /nowhere/file", "no such file"}},
		{args("write -t tcp -a 127.0.0.1 --input /tmp"), exitFailure, []string{"--input /tmp", "is a directory"}},
	})
}

// TestCompletions: shells are offered the words that an argument or a list takes.
func TestCompletions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		program, line string
		want          string // with cobra's directive
	}{
		{"nvmetgt", "ctl set-ana ", ":4"},
		{"nvmetgt", "ctl set-ana 1 ", "optimized non-optimized inaccessible persistent-loss change :4"},
		{"nvmetgt", "ctl set-ana 1 optimized ", ":4"},
		{"nvmeinit", "bench --compare ", "rdma tcp :6"},
		{"nvmeinit", "bench --compare tcp,", "tcp,rdma tcp,tcp :6"},
	} {
		words := append([]string{"__completeNoDesc"}, strings.Split(c.line, " ")...)
		r := start(t, c.program, words...).result(t, cliTimeout)
		if got := strings.Join(strings.Fields(r.stdout), " "); r.code != 0 || got != c.want {
			t.Errorf("%s %s: %q, exit code %d, want %q", c.program, c.line, got, r.code, c.want)
		}
	}
}

// Files that can't be exported.
func TestTargetFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := "tcp://" + freeAddr(t).String()
	serve := func(flags string) []string {
		return append([]string{"serve", "--listen", at}, args(strings.ReplaceAll(flags, "DIR", dir))...)
	}
	makeFile(t, dir+"/odd.img", 1000)
	makeFile(t, dir+"/even.img", 1<<20)
	makeFile(t, dir+"/there.pcapng", 0)
	check(t, "nvmetgt", []mistake{
		{serve("--volume DIR/none.img"), exitFailure, []string{"none.img", "no such file", "--size"}},
		{serve("--volume DIR/none.img --read-only"), exitFailure, []string{"none.img", "read-only isn't created"}},
		{serve("--volume pmem:DIR/none.img"), exitFailure, []string{"pmem:", "none.img", "no such file", "--size"}},
		{serve("--volume DIR/none/disk.img --size 1MiB"), exitFailure, []string{"disk.img", "directory doesn't exist"}},
		{serve("--volume DIR/new.img --size 1001"), exitUsage, []string{"new.img", "1001 bytes", "block size 4096"}},
		{serve("--volume DIR/odd.img"), exitFailure, []string{"odd.img", "1000 bytes", "not a multiple", "4096"}},
		{serve("--volume pmem:DIR/odd.img"), exitFailure, []string{"odd.img", "1000 bytes", "not a multiple"}},
		{serve("--volume DIR/even.img --size 2MiB"), exitFailure, []string{"even.img", "1.0 MiB", "2.0 MiB"}},
		{serve("--volume DIR"), exitFailure, []string{"it is a directory"}},
		{serve("--volume mem:1MiB --pcap DIR/there.pcapng"), exitFailure, []string{"--pcap", "there.pcapng", "exists already"}},
		{serve("--volume mem:1MiB --pcap DIR/none/x.pcapng"), exitFailure, []string{"--pcap", "no such file", "/none first"}},
		{serve("--volume mem:1MiB --state /proc/none"), exitFailure, []string{"--state /proc/none", "choose another place"}},
	})
	if _, err := os.Stat(dir + "/new.img"); err == nil {
		t.Error("a volume that was refused was created all the same")
	}
}

// A file or a directory of state that may not be written to: by its mode, which root overrides, or by its file system.
func TestTargetReadOnlyFile(t *testing.T) {
	t.Parallel()
	dir, refused := t.TempDir(), "permission denied"
	path := makeFile(t, dir+"/ro.img", 1<<20)
	state := dir + "/state"
	if err := os.Mkdir(state, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := remountReadOnly(t, dir); err != nil {
			t.Skipf("root may write every file, and this machine lets us mount nothing read-only: %v", err)
		}
		refused = "read-only file system"
	} else if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	at := "tcp://" + freeAddr(t).String()
	check(t, "nvmetgt", []mistake{
		{[]string{"serve", "--listen", at, "--volume", path}, exitFailure, []string{path, refused, "open it read-only"}},
		{[]string{"serve", "--listen", at, "--volume", "pmem:" + path}, exitFailure, []string{path, refused, "open it read-only"}},
		{[]string{"serve", "--listen", at, "--volume", "mem:1MiB", "--state", state}, exitFailure, []string{"--state " + state, refused, "choose another place"}},
	})
	tgt := startTarget(t, "--volume", path, "--read-only")
	tgt.must(t, cliTimeout, "tcp", "read", "--length", "64k", "--output", "/dev/null")
	r := tgt.run(t, cliTimeout, "tcp", "write", "--input", makeFile(t, t.TempDir()+"/in", 4096))
	checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"Write", "namespace 1", "write protected", "read-only"}})
}

// remountReadOnly makes a directory read-only until the test ends.
func remountReadOnly(t *testing.T, dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// What another program already uses.
func TestTargetInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tgt := startTarget(t, "--volume", dir+"/file.img", "--volume", "pmem:"+dir+"/pmem.img", "--size", "4MiB")
	owner := fmt.Sprintf("process %d", tgt.pid())
	other := "tcp://" + freeAddr(t).String()
	addr := tgt.addr.String()
	check(t, "nvmetgt", []mistake{
		{args("serve --listen " + other + " --volume " + dir + "/file.img"), exitFailure, []string{"file.img", "in use", owner, "nvmetgt", "another file"}},
		{args("serve --listen " + other + " --volume pmem:" + dir + "/file.img"), exitFailure, []string{"file.img", "in use", owner}},
		{args("serve --listen " + other + " --volume pmem:" + dir + "/pmem.img"), exitFailure, []string{"pmem.img", "in use", owner}},
		{args("serve --listen " + other + " --read-only --volume " + dir + "/file.img"), exitFailure, []string{"file.img", "in use", owner}},
		{args("serve --volume mem:1MiB --listen tcp://" + addr), exitFailure, []string{"--listen tcp://" + addr + ":4420", "port in use", "ss -ltnp", "choose another"}},
		{args("serve --volume mem:1MiB --listen rdma://" + addr), exitFailure, []string{addr + ":4791", "port in use", owner, "nvmetgt", "another address"}},
		{args("serve --volume mem:1MiB --listen rdma://" + addr + ":4421"), exitFailure, []string{addr + ":4791", "port in use", owner}},
	})
	check(t, "nvmeinit", []mistake{
		{args("connect -t rdma -a 127.0.0.1 -w " + addr), exitFailure, []string{"-w " + addr, addr + ":4791", "port in use", owner}},
		{args("connect -t rdma -a " + addr + " -w " + addr), exitFailure, []string{"-w " + addr, "is the destination, too", "another address"}},
	})
	tgt.stop(t)
}

// Port 4791 is in use by something that is neither of the programs.
func TestRoCEPortTaken(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	s, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, softrnic.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check(t, "nvmetgt", []mistake{
		{args("serve --volume mem:1MiB --listen rdma://" + addr.String()), exitFailure,
			[]string{"4791", "port in use", fmt.Sprintf("process %d", os.Getpid()), "stop it", "another address"}},
	})
}

// Targets that don't exist.
func TestUnreachable(t *testing.T) {
	alone(t)
	nobody := freeAddr(t).String()
	tgt := startTarget(t, "--volume", "mem:1MiB")
	for _, verb := range []string{"discover", "connect", "list"} {
		to := func(transport, addr, port string) []string {
			return args(verb + " -t " + transport + " -a " + addr + " -s " + port)
		}
		refusals := []mistake{
			{to("tcp", nobody, "4420"), exitFailure, []string{"tcp://" + nobody + ":4420", "connection refused", "nothing listens", "-a and -s"}},
			{append(to("rdma", nobody, "4420"), "--timeout", "1s"), exitFailure, []string{"rdma://" + nobody + ":4420", "no answer within 1s", "UDP port 4791"}},
			{to("tcp", tgt.addr.String(), "4421"), exitFailure, []string{tgt.addr.String() + ":4421", "connection refused", "-s"}},
			{to("rdma", tgt.addr.String(), "4421"), exitFailure, []string{tgt.addr.String() + ":4421", "connection refused", "nothing listens on its port 4421"}},
		}
		const tries = 3 // a machine that stands still for a while exceeds it once
		for try := 1; ; try++ {
			began := time.Now()
			check(t, "nvmeinit", refusals)
			if took := time.Since(began); took <= 6*time.Second {
				break
			} else if try == tries {
				t.Errorf("%s: four refusals took %v, though --timeout is 1s", verb, took)
				break
			}
		}
	}
}

// Peers that accept a TCP connection and aren't NVMe/TCP targets.
func TestNotATarget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve func(net.Conn)
		flags string
		says  []string
	}{
		"silent": {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "--timeout 1s", []string{"no answer within 1s", "TCP port"}},
		"closes": {func(c net.Conn) { c.Close() }, "", []string{"doesn't answer as an NVMe/TCP target", "-a and -s", "drained", "TLS"}},
		"HTTP": {func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}, "", []string{"doesn't answer as an NVMe/TCP target", "PDU type 0x48"}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() { c.serve(conn); conn.Close() }()
				}
			}()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			r := nvmeinit(t, cliTimeout, args("connect -t tcp -a 127.0.0.1 -s "+port+" "+c.flags)...)
			checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: append(c.says, "tcp://127.0.0.1:"+port)})
		})
	}
}

func TestWrongSubsystem(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:1MiB", "--allow-host", "nqn.2026-11.org.example:friend")
	const stranger, friend = "nqn.2026-11.org.example:stranger", "nqn.2026-11.org.example:friend"
	for _, transport := range transports {
		for _, c := range []struct {
			flags string
			says  []string
		}{
			{"-q " + friend + " -n nqn.2026-11.org.example:none",
				[]string{"no subsystem nqn.2026-11.org.example:none", "nvmeinit discover -t " + transport + " -a " + tgt.addr.String()}},
			{"-q " + friend + " -n disk1", []string{"no subsystem disk1", "nvmeinit discover -t " + transport}}, // other targets may have it
			{"-q " + stranger + " -n " + testNQN, []string{testNQN, "doesn't admit host " + stranger, "--allow-host", "-q"}},
			{"-q " + stranger, []string{"no subsystem for host " + stranger, "--allow-host", "-q"}},
		} {
			t.Run(transport+" "+c.flags, func(t *testing.T) {
				r := tgt.run(t, cliTimeout, transport, "connect", args(c.flags)...)
				checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: append(c.says, transport+"://"+tgt.addr.String()+":4420")})
			})
		}
		tgt.must(t, cliTimeout, transport, "connect", "-q", friend)
		if out := tgt.must(t, cliTimeout, transport, "connect", "-q", friend, "-n", nvme.DiscoveryNQN); !strings.Contains(out, "connected to "+nvme.DiscoveryNQN) {
			t.Errorf("connected to the discovery subsystem:\n%s", out)
		}
		for _, verb := range []string{"list", "read"} {
			r := tgt.run(t, cliTimeout, transport, verb, "-q", friend, "-n", nvme.DiscoveryNQN)
			checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{nvme.DiscoveryNQN + " is for discovery, and has none"}})
		}
	}
	tgt.stop(t)
}

// Ranges and files that don't fit the namespace.
func TestWrongRange(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:4MiB", "--volume", "mem:1MiB")
	dir := t.TempDir()
	out := dir + "/out.img"
	odd, big, small := makeFile(t, dir+"/odd", 5000), makeFile(t, dir+"/big", 5<<20), makeFile(t, dir+"/small", 4096)
	there := makeFile(t, dir+"/there", 3)
	for _, c := range []struct {
		line string
		code int
		says []string
	}{
		{"read --output " + out + " --offset 100", exitUsage, []string{"--offset 100", "multiples", "4096"}},
		{"read --output " + out + " --length 100", exitUsage, []string{"--length 100", "multiples", "4096"}},
		{"read --output " + out + " --length 0", exitUsage, []string{"--length 0", "at least one block"}},
		{"write --input " + small + " --length 0", exitUsage, []string{"--length 0", "at least one block"}},
		{"read --output " + out + " --offset 8MiB", exitUsage, []string{"--offset 8.0 MiB is beyond", "4.0 MiB"}},
		{"read --output " + out + " --offset 4MiB", exitUsage, []string{"--offset 4.0 MiB", "end", "nothing to read"}},
		{"read --output " + out + " --offset 3MiB --length 2MiB", exitUsage, []string{"--length 2.0 MiB", "--offset 3.0 MiB", "beyond", "4.0 MiB"}},
		{"read --output " + out + " --nsid 9", exitFailure, []string{"--nsid 9", testNQN, "no such namespace", "it has 1 2"}},
		{"read --output " + out + " --nsid 0", exitFailure, []string{"--nsid 0", "no such namespace", "it has 1 2"}},
		{"read --output " + there, exitFailure, []string{there, "exists already", "choose another"}},
		{"read --output " + dir + "/none/out", exitFailure, []string{dir + "/none/out", "no such file"}},
		{"read --output /dev/full", exitFailure, []string{"/dev/full", "no space left"}},
		{"write --input " + odd, exitUsage, []string{odd, "5000 bytes", "block, 4096 bytes", "--length"}},
		{"write --input " + big, exitUsage, []string{big, "5.0 MiB", "room for 4.0 MiB", "--length"}},
		{"write --input " + small + " --offset 4MiB", exitUsage, []string{small, "room for 0 B"}},
		{"write --input " + small + " --offset 1", exitUsage, []string{"--offset 1", "multiples"}},
		{"write --input " + small + " --length 8k", exitUsage, []string{small, "4.0 KiB", "less than --length 8.0 KiB"}},
		{"write --input " + small + " --nsid 9", exitFailure, []string{"--nsid 9", "it has 1 2"}},
		{"write --input /dev/null --length 4k", exitFailure, []string{"--input", "ended after 0 B", "--length"}},
		{"write --input /dev/zero", exitFailure, []string{"ends after 4.0 MiB", "--length"}},
		{"id-ns --nsid 9", exitFailure, []string{"--nsid 9", "it has 1 2"}},
		{"flush --nsid 9", exitFailure, []string{"--nsid 9", "it has 1 2"}},
		{"bench --nsid 9", exitFailure, []string{"--nsid 9", "it has 1 2"}},
		{"bench --bs 2MiB", exitUsage, []string{"--bs=2097152", "at most 1.0 MiB", "MDTS"}},
		{"bench --bs 1g", exitUsage, []string{"--bs=1.0 GiB", "has 4.0 MiB"}},
		{"bench --bs 1000", exitUsage, []string{"--bs=1000", "multiple", "4096"}},
		{"bench --offset 3", exitUsage, []string{"--offset=3", "multiple of 4096"}},
		{"bench --size 5MiB", exitUsage, []string{"--size=5.0 MiB", "the namespace has 4.0 MiB"}},
		{"bench --nsid 2 --offset 1MiB", exitUsage, []string{"--offset=1.0 MiB", "inside the namespace of 1.0 MiB"}},
	} {
		verb, flags, _ := strings.Cut(c.line, " ")
		for _, transport := range transports {
			t.Run(transport+" "+strings.ReplaceAll(c.line, "/", "∕"), func(t *testing.T) {
				r := tgt.run(t, cliTimeout, transport, verb, append(args(flags), "-n", testNQN)...)
				checkLine(t, r, "nvmeinit", mistake{code: c.code, says: c.says})
			})
		}
		if _, err := os.Stat(out); err == nil {
			t.Fatalf("%s: left %s behind", c.line, out)
		}
	}
	if b, err := os.ReadFile(there); err != nil || len(b) != 3 {
		t.Errorf("a file that existed was changed: %d bytes, %v", len(b), err)
	}
	tgt.stop(t)
}

// A disk that becomes full: under the target's volume, under the initiator's output, and under a capture.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir, empty := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, empty} {
		if err := unix.Mount("tmpfs", d, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("a small file system can't be mounted here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(d, unix.MNT_DETACH) })
	}
	in := makeFile(t, t.TempDir()+"/in", 8<<20)
	tgt := startTarget(t, "--volume", dir+"/sparse.img", "--size", "16MiB", "--volume", "mem:16MiB")
	for _, transport := range transports {
		r := tgt.run(t, cliTimeout, transport, "write", "--nsid", "1", "--input", in)
		checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"Write", "namespace 1", "the volume behind the namespace is full"}})
		out := dir + "/out"
		r = tgt.run(t, cliTimeout, transport, "read", "--nsid", "2", "--output", out)
		checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"--output " + out, "no space left", "after"}})
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: a part of the namespace was left in %s", transport, out)
		}
		r = tgt.run(t, cliTimeout, transport, "read", "--nsid", "2", "--output", empty+"/out")
		checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"no space left", "after 1.0 MiB"}})
		r = tgt.run(t, cliTimeout, transport, "read", "--nsid", "2", "--output", "/dev/null", "--quiet", "--pcap", dir+"/full.pcapng")
		checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"full.pcapng", "no space left"}})
		_ = os.Remove(dir + "/full.pcapng")
		tgt.must(t, cliTimeout, transport, "read", "--nsid", "2", "--output", "/dev/null") // it goes on
	}
	tgt.stop(t)
}

// A pipe that is closed early, or full, is a failure, too.
func TestStandardOutputFull(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:4MiB")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, verb := range []string{"read", "id-ctrl", "id-ns", "list", "list -o json", "smart-log", "ana-log", "discover", "connect", "bench --number_ios 1 -o json"} {
		r := runInto(t, full, "nvmeinit", append(args(verb), tgt.to("tcp")...)...)
		checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"standard output", "no space left"}})
	}
}

// runInto runs a program, whose standard output is a file, to its end.
func runInto(t *testing.T, stdout *os.File, name string, args ...string) result {
	t.Helper()
	p := newProgram(t, name, args...)
	p.cmd.Stdout = stdout
	if err := begin(starting, p.cmd); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(cliTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	_ = p.cmd.Wait()
	return result{"", p.stderr.String(), p.cmd.ProcessState.ExitCode()}
}

// A target that can't print its line "ready" ends: whatever started it waits for the line.
func TestTargetOutputFull(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	gone, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	defer pipe.Close()
	for _, c := range []struct {
		stdout *os.File
		says   string
	}{{full, "no space left on device"}, {pipe, "broken pipe"}} {
		r := runInto(t, c.stdout, "nvmetgt", "serve", "--volume", "mem:1MiB", "--listen", "tcp://"+freeAddr(t).String())
		checkLine(t, r, "nvmetgt", mistake{code: exitFailure, says: []string{"standard output", c.says, "ready"}})
	}
}

// A program that is interrupted says so and stops at once, and the target keeps serving.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:64MiB")
	for _, transport := range transports {
		p := tgt.startInit(t, transport, "bench", "--rw", "randread", "--runtime", "1m")
		hold := tgt.startInit(t, transport, "connect", "--hold")
		waitText(t, &hold.stderr, "holding")
		fifo := heldFIFO(t)
		writes := tgt.startInit(t, transport, "write", "--input", fifo, "--pcap", fifo+".pcapng")
		eventually(t, cliTimeout, "the connection is there", func() bool { i, err := os.Stat(fifo + ".pcapng"); return err == nil && i.Size() > 0 })
		full := heldFIFO(t)
		reads := tgt.startInit(t, transport, "read", "--output", full, "--pcap", full+".pcapng")
		eventually(t, cliTimeout, "data has come", func() bool { i, err := os.Stat(full + ".pcapng"); return err == nil && i.Size() > 1<<20 })
		for q, want := range map[*program]int{p: exitInterrupted, hold: 0, writes: exitInterrupted, reads: exitInterrupted} {
			q.signal(syscall.SIGINT)
			if code := q.wait(t, 5*time.Second); code != want {
				t.Errorf("%s: exit code %d after SIGINT, want %d: %s", q, code, want, q.stderr.String())
			}
		}
		tgt.must(t, cliTimeout, transport, "connect")
	}
	tgt.stop(t)
}

// heldFIFO is a pipe that somebody has open but neither writes to nor reads.
func heldFIFO(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	return path
}

// The examples of read and write work as their help shows them.
func TestCopyExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"disk.img": 1 << 20, "dir/file": 1} {
		writeFile(t, filepath.Join(dir, name), make([]byte, size))
	}
	tgt := startTarget(t, "--volume", "mem:16MiB")
	defer tgt.stop(t)
	for _, verb := range []string{"write", "read"} {
		help := start(t, "nvmeinit", verb, "--help").result(t, cliTimeout).stdout
		_, examples, _ := strings.Cut(help, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		for line := range strings.Lines(examples) {
			shell(t, dir, strings.ReplaceAll(line, "127.0.0.1", tgt.addr.String()))
		}
		if strings.Count(examples, "\n") < 1 {
			t.Errorf("%s --help has the examples %q", verb, examples)
		}
	}
}
