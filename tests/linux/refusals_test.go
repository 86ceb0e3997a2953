package linux

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// refusals are connections that a target refuses, or grants with less than was asked for.
var refusals = []struct {
	name    string
	options string   // of nvme connect
	ours    []string // of nvmetgt
	kernels string   // the same for the kernel's target, in the directory of its subsystem
	full    bool     // two others are connected; Linux 6.1 has no limit below
	retried bool     // nvmetgt lets the host try again, which the kernel's target has never try again (DNR)
}{
	{name: "wrong-nqn", options: "-s 4420 -n " + testNQN + ".not"},
	{name: "wrong-port", options: "-s 4499 -n " + testNQN},
	{name: "wrong-host", options: "-s 4420 -n " + testNQN,
		ours: []string{"--allow-host", "nqn.2026-11.io.nvme-anywhere:another"}, kernels: "echo 0 > attr_allow_any_host"},
	{name: "full-target", options: "-s 4420 -n " + testNQN, full: true, retried: true,
		ours: []string{"--max-controllers", "2"}, kernels: "echo $two > attr_cntlid_max"},
	{name: "deep-queue", options: "-s 4420 -Q 1024 -n " + testNQN},
}

// testRefusals: the host prints the same about nvmetgt as about the kernel's target, which listens in the same machine,
// except that nvmetgt omits Do Not Retry where it needn't be set.
func testRefusals(t *testing.T, p *peer, transport string) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			p.export(t, transport)
			if c.kernels != "" {
				two := 2
				if p.Image.Version == "5.10" {
					two = 3 // it takes the highest CNTLID for one too high
				}
				p.must(t, fmt.Sprintf("two=%d && cd /sys/kernel/config/nvmet/subsystems/%s && %s", two, testNQN, c.kernels))
			}
			kernels := p.said(t, transport, p.Addr.String(), c.options, c.full)
			depth := "128"
			if strings.Contains(kernels, "success") && !strings.Contains(kernels, "clamping") {
				depth = "1024" // over TCP the kernel's target of 6.1 accepts this many
			}
			serve(t, append([]string{"--volume", "mem:64MiB", "--queue-depth", depth}, c.ours...)...)
			ours := p.said(t, transport, hostAddr, c.options, c.full)
			if c.retried {
				kernels = strings.Replace(kernels, ret(nvme.StatusConnectBusy|nvme.StatusDNR), ret(nvme.StatusConnectBusy), 1)
			}
			if ours != kernels {
				t.Errorf("of nvmetgt the host prints:\n%sof the kernel's target:\n%s", ours, kernels)
			}
			t.Attr("printed", strings.ReplaceAll(strings.TrimSpace(ours), "\n", " | "))
		})
	}
}

// ret is how the kernel prints the status of a Connect that was refused.
func ret(st nvme.Status) string { return fmt.Sprintf("ret=%d", uint16(st)) }

// variable matches the parts of the host's output that depend on the target's address, and on the time.
var variable = regexp.MustCompile(`nvme\d+|198\.18\.0\.\d+|(?m:^\[ *[\d.]+\] )`)

// said returns what nvme-cli and the kernel say about a connection, without the variable parts.
func (p *peer) said(t testing.TB, transport, addr, options string, full bool) string {
	t.Helper()
	connect := fmt.Sprintf("nvme connect -t %s -a %s %s", transport, addr, options)
	if full {
		for _, from := range lab.OtherAddrs {
			defer hold(t, transport, addr, from.String())()
		}
	}
	p.must(t, "dmesg -C")
	out := p.must(t, connect+" 2>&1 && echo success || echo exit code $?")
	out += p.must(t, "dmesg -c | grep 'nvme nvme' || true")
	_, err := p.try(t, "nvme disconnect-all; for i in $(seq 100); do ls /sys/class/nvme/nvme* >/dev/null 2>&1 || exit 0; sleep 0.1; done; exit 1")
	if err != nil {
		t.Error(err)
	}
	p.must(t, "dmesg -C")
	return invariable(out)
}

// invariable returns the output without them.
func invariable(printed string) string {
	return variable.ReplaceAllStringFunc(printed, func(s string) string {
		switch s[0] {
		case 'n':
			return "nvmeX"
		case '[':
			return ""
		}
		return "TARGET"
	})
}
