package tests

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Every command's help, including nested commands, has an example that begins with the command and that the program
// accepts.
func TestHelp(t *testing.T) {
	t.Parallel()
	for program, least := range map[string]int{"nvmetgt": 24, "nvmeinit": 46} {
		if n := checkHelp(t, program, ""); n < least {
			t.Errorf("%s: help of %d commands was looked at, want %d", program, n, least)
		}
		if r := start(t, program, "--version").result(t, cliTimeout); r.code != 0 || !strings.Contains(r.stdout, program) {
			t.Errorf("%s --version: exit code %d, %q", program, r.code, r.stdout)
		}
	}
}

var defaultTwice = regexp.MustCompile(`\(default [^()]*\) \(default`)

// checkHelp checks the help of a command, and of those that it lists, and returns how many those are.
func checkHelp(t *testing.T, program, verb string) (n int) {
	t.Helper()
	r := start(t, program, append(args(verb), "--help")...).result(t, cliTimeout)
	if r.code != 0 || r.stderr != "" {
		t.Errorf("%s %s --help: exit code %d, %q", program, verb, r.code, r.stderr)
	}
	_, examples, _ := strings.Cut(r.stdout, "Examples:\n")
	examples, _, _ = strings.Cut(examples, "\n\nFlags")
	if !strings.Contains(examples, strings.TrimSpace(program+" "+verb)) {
		t.Errorf("%s %s --help has no example:\n%s", program, verb, r.stdout)
	}
	for _, command := range shellCommands(examples) {
		parses(t, program+" "+verb+" --help", command)
	}
	if text := strings.Join(strings.Fields(r.stdout), " "); defaultTwice.MatchString(text) {
		t.Errorf("%s %s --help says a default twice:\n%s", program, verb, r.stdout)
	}
	for line := range strings.Lines(r.stdout) {
		if n := len([]rune(line)); n > 112 {
			t.Errorf("%s %s --help: a line of %d characters: %s", program, verb, n, line)
		}
	}
	for part := range strings.SplitSeq(r.stdout, "\n\n") {
		if !strings.HasPrefix(part, "Commands") {
			continue
		}
		_, commands, _ := strings.Cut(part, "\n")
		for line := range strings.Lines(commands) {
			if name := strings.Fields(line)[0]; name != "completion" { // which is cobra's
				n += checkHelp(t, program, strings.TrimSpace(verb+" "+name))
			}
		}
	}
	return n + 1
}

// With -o json the output is JSON, with the fields that scripts use.
func TestJSON(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:4MiB", "--volume", "null:1GiB", "--state", t.TempDir())
	of := strings.ReplaceAll(testNQN, ".", `\.`) + "."
	for _, transport := range transports {
		for _, c := range []struct {
			line string
			has  []string // paths of fields
		}{
			{"discover", []string{"genctr", "records.0.subnqn", "records.0.traddr", "records.0.trsvcid", "records.0.trtype"}},
			{"connect", []string{"subnqn", "cntlid", "nr_io_queues", "round_trip_us", "namespaces.1.size"}},
			{"id-ctrl", []string{"sn", "mn", "mdts", "nn", "subnqn", "ioccsz"}},
			{"id-ns --nsid 2", []string{"nsze", "ncap", "flbas", "size", "block_size"}},
			{"list", []string{"Devices.0.NameSpace", "Devices.1.PhysicalSize", "Devices.1.SectorSize"}},
			{"smart-log", []string{"data_units_read", "host_read_commands", "avail_spare", "temperature"}},
			{"ana-log", []string{"chgcnt", "ngrps", "ANA DESC LIST .0.grpid", "ANA DESC LIST .0.NSIDS.1.nsid", "ANA DESC LIST .0.state"}},
			{"error-log", []string{"errors"}},
			{"fw-log", []string{of + "Firmware Rev Slot 1"}},
			{"effects-log", []string{"0.admin_cmd_set.ACS_6 (Identify)", "0.io_cmd_set.IOCS_2 (Read)"}},
			{"supported-log-pages", []string{"supported_logs.2.lid_0x2 "}},
			{"fid-support-effects-log", []string{"fid_support.0.fid_1"}},
			{"persistent-event-log", []string{"power_cycle_count", "list_of_event_entries.1.event_type"}},
			{"sanitize-log", []string{of + "sstat.status"}},
			{"get-feature", []string{"feature: 0x07.0.Current"}},
			{"get-feature -f 0x84 --nsid 1 --sel 3", []string{"Supported capabilities", "meaning"}},
			{"list-ns", []string{"nsid_list.1.nsid"}},
			{"list-ns --all", []string{"nsid_list.1.nsid"}},
			{"list-ctrl", []string{"ctrl_list.0.ctrl_id"}},
			{"list-ctrl --nsid 1", []string{"ctrl_list.0.ctrl_id"}},
			{"ns-descs --nsid 2", []string{"ns-descs.0.uuid"}},
			{"id-iocs", []string{"I/O Command Set Combination[0]"}},
			{"nvm-id-ctrl", []string{"wzsl", "dmrl"}},
			{"cmdset-ind-id-ns", []string{"anagrpid", "nstat"}},
			{"show-regs", []string{"cap", "vs", "cc", "csts"}},
			{"resv-report", []string{"gen", "rtype", "regctlext"}},
			{"bench --rw randwrite --fsync 4 --number_ios 16",
				[]string{"jobs.0.write.iops", "jobs.0.sync.total_ios", "jobs.0.sync.lat_ns.percentile.99\\.000000"}},
			{"bench --rw randread --bs 4k --iodepth 4 --runtime 100ms",
				[]string{"jobs.0.read.iops", "jobs.0.read.bw_bytes", "jobs.0.read.clat_ns.percentile.99\\.000000", "jobs.0.usr_cpu"}},
		} {
			verb, flags, _ := strings.Cut(c.line, " ")
			out := tgt.must(t, cliTimeout, transport, verb, append(args(flags), "-o", "json")...)
			var v any
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				t.Errorf("%s %s: not JSON: %v\n%s", transport, c.line, err, out)
				continue
			}
			for _, path := range c.has {
				if !hasField(v, path) {
					t.Errorf("%s %s: no %s in\n%s", transport, c.line, path, out)
				}
			}
		}
	}
}

// TestGetFeature: all features are those of the controller, and with --nsid those of a namespace too; one that is refused
// doesn't hide the others.
func TestGetFeature(t *testing.T) {
	t.Parallel()
	const id = "6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a"
	tgt := startTarget(t, "--volume", "mem:4MiB")
	for _, transport := range transports {
		for flags, want := range map[string]string{ // of the line of feature 84h
			"": "", "--nsid 1": "not protected", "--nsid 9": "invalid namespace",
		} {
			out := tgt.must(t, cliTimeout, transport, "get-feature", append(args(flags), "-I", id)...)
			_, protection, shown := strings.Cut(out, "\n 0x84 ")
			if shown != (want != "") || !strings.Contains(protection, want) || !strings.Contains(out, id) || !strings.Contains(out, "submission queues: 1") {
				t.Errorf("%s %s: want %q at 84h:\n%s", transport, flags, want, out)
			}
		}
	}
}

// TestHumanReadable: -H adds the parts of bit fields, but not to JSON.
func TestHumanReadable(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:4MiB")
	for line, has := range map[string]string{
		"id-ctrl":             "  [8:8]    : 0x1  Copy\n",
		"id-ns":               "  [0:0]    : 0x1  Shared Namespace\n",
		"smart-log":           ": 0x0  Reliability Degraded\n",
		"show-regs":           "  [19:16]  : 0x6  I/O Submission Queue Entry Size, 2^n bytes\n",
		"get-feature":         "feature: 0x0b\nname       : Asynchronous Event Configuration\n",
		"get-feature -f 0x0b": "  [8:8]    : 0x1  Attached Namespace Attribute Notices\n",
		"cmdset-ind-id-ns":    "  [0:0]    : 0x1  Namespace Ready\n",
		"fw-log":              " : 0x1  Active Firmware Slot\n",
		"sanitize-log":        " : 0x0  Sanitize Operation Status: never sanitized\n",
	} {
		verb, flags, _ := strings.Cut(line, " ")
		show := func(more ...string) string {
			return tgt.must(t, cliTimeout, "tcp", verb, append(args(flags), more...)...)
		}
		if out := show("-H"); !strings.Contains(out, has) {
			t.Errorf("%s -H doesn't show %q:\n%s", line, has, out)
		}
		if out := show(); strings.Contains(out, has) {
			t.Errorf("%s shows %q:\n%s", line, has, out)
		}
		if out := show("-H", "-o", "json"); !json.Valid([]byte(out)) || strings.Contains(out, ":8]") {
			t.Errorf("%s -H -o json shows\n%s", line, out)
		}
	}
}

// hasField follows a path of names and indices separated by dots; "\." is a dot in a name.
func hasField(v any, path string) bool {
	const dot = "\x00"
	for name := range strings.SplitSeq(strings.ReplaceAll(path, `\.`, dot), ".") {
		name = strings.ReplaceAll(name, dot, ".")
		switch x := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = x[name]; !ok {
				return false
			}
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(x) {
				return false
			}
			v = x[i]
		default:
			return false
		}
	}
	return true
}
