package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func TestFromNVMeTCLI(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "nvmetcli.json"))
	if err != nil {
		t.Fatal(err)
	}
	im, err := FromNVMeTCLI("nvmetcli.json", b, "")
	if err != nil {
		t.Fatal(err)
	}
	out, err := im.Config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := `listen:
  - rdma://192.0.2.1:4420
  - tcp://[2001:db8::1]:4421
subsystems:
  - nqn: nqn.2026-11.org.example:a
    serial: abc123
    model: Linux
    hosts:
      - nqn.2014-08.org.nvmexpress:uuid:5b1f2c7e-0a51-4a6c-9d6e-6b8a6d1c2a10
    namespaces:
      - nsid: 3
        volume: /dev/sdb
        uuid: 6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001
        ana_group: 2
      - nsid: 4
        volume: /dev/sdc
        nguid: ef90689c6c46d44c89c14067801309a8
        ana_group: 3
  - nqn: nqn.2026-11.org.example:b
    namespaces: []
ana:
  - group: 2
    state: inaccessible
    listen: rdma://192.0.2.1:4420
  - group: 3
    state: inaccessible
    listen: rdma://192.0.2.1:4420
  - group: 2
    state: inaccessible
    listen: tcp://[2001:db8::1]:4421
  - group: 3
    state: inaccessible
    listen: tcp://[2001:db8::1]:4421
discovery:
  referrals:
    - tcp://192.0.2.9:8009
`
	if string(out) != want {
		t.Errorf("it became\n%s, want\n%s", out, want)
	}
	notes := []string{
		"subsystem nqn.2026-11.org.example:a: namespace 5 is not enabled, and left out",
		"subsystem nqn.2026-11.org.example:closed: it allows no host, and is left out: here it would allow every one",
		"port rdma://192.0.2.1:4420: referral b is not enabled, and left out",
		"port rdma://192.0.2.1:4420: referral c is left out: target: invalid target configuration: referral: 0.0.0.0:8009 isn't an address and port that hosts can reach",
		"port rdma://192.0.2.1:4420: subsystem nqn.2026-11.org.example:gone is left out: the file doesn't say what it is",
		"port rdma://192.0.2.1:4420: it serves every subsystem here, so nqn.2026-11.org.example:b too",
		`port "loop://": transport "loop" is not supported: want rdma or tcp: left out`,
	}
	if !slices.Equal(im.Notes, notes) {
		t.Errorf("the notes are\n%s, want\n%s", strings.Join(im.Notes, "\n"), strings.Join(notes, "\n"))
	}
}

// TestFromNVMeTCLIWithoutTLS: a port that serves only hosts with a TLS key isn't opened to all others, and what TLS was
// optional for is said.
func TestFromNVMeTCLIWithoutTLS(t *testing.T) {
	for _, x := range []struct{ treq, tsas, want string }{
		{"not specified", "none", ""},
		{"required", "none", ""}, // nvmet heeds it only beside TLS
		{"required", "tls1.3", "port tcp://192.0.2.1:4420: it demands TLS, which isn't supported, and is left out"},
		{"not specified", "tls1.3", "port tcp://192.0.2.1:4420: it demands TLS, which isn't supported, and is left out"},
		{"not required", "tls1.3", "port tcp://192.0.2.1:4420: it also accepts TLS, which isn't supported"},
	} {
		in := fmt.Sprintf(`{
  "ports": [{"addr": {"adrfam": "ipv4", "traddr": "192.0.2.1", "treq": %q, "trsvcid": "4420", "trtype": "tcp", "tsas": %q},
    "subsystems": ["nqn.2026-11.org.example:s"]}],
  "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1"}}]
}`, x.treq, x.tsas)
		im, err := FromNVMeTCLI("f", []byte(in), "")
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(im.Notes, "\n")
		if listens := len(im.Config.Listen) == 1; listens == strings.Contains(x.want, "left out") || (notes == "") != (x.want == "") || !strings.HasPrefix(notes, x.want) {
			t.Errorf("%s, TLS %s: %d endpoints, notes %q", x.tsas, x.treq, len(im.Config.Listen), notes)
		}
		if none := len(im.Config.Listen) == 0; none != strings.Contains(notes, "no port remains: here it would listen on rdma://127.0.0.1:4420 and tcp://127.0.0.1:4420") {
			t.Errorf("%s, TLS %s: what is listened on without a port: notes %q", x.tsas, x.treq, notes)
		}
	}
}

// TestFromNVMeTCLIEverywhere: a port at [::] serves hosts over IPv4 too, as Linux's TCP does.
func TestFromNVMeTCLIEverywhere(t *testing.T) {
	port := func(trtype, traddr string) string {
		family := map[bool]string{false: "ipv4", true: "ipv6"}[strings.Contains(traddr, ":")]
		return fmt.Sprintf(`{"addr": {"adrfam": %q, "traddr": %q, "trsvcid": "4420", "trtype": %q}, "subsystems": ["nqn.2026-11.org.example:s"],
    "ana_groups": [{"ana": {"state": "optimized"}, "grpid": 1}, {"ana": {"state": "inaccessible"}, "grpid": 2}]}`, family, traddr, trtype)
	}
	for _, x := range []struct{ ports, listen string }{
		{port("tcp", "::"), "tcp://[::]:4420 tcp://0.0.0.0:4420"},
		{port("tcp", "::1"), "tcp://[::1]:4420"},
		{port("tcp", "0.0.0.0"), "tcp://0.0.0.0:4420"},
		{port("rdma", "::"), "rdma://[::]:4420"},                                                 // rdma_set_afonly
		{port("tcp", "::") + "," + port("tcp", "0.0.0.0"), "tcp://[::]:4420 tcp://0.0.0.0:4420"}, // with net.ipv6.bindv6only
		{port("tcp", "::") + "," + port("tcp", "192.0.2.1"), "tcp://[::]:4420 tcp://192.0.2.1:4420"},
	} {
		in := `{"ports": [` + x.ports + `], "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1"},
  "namespaces": [{"device": {"path": "/dev/sdb"}, "enable": 1, "ana_grpid": 2, "nsid": 1}]}]}`
		im, err := FromNVMeTCLI("f", []byte(in), "")
		if err != nil {
			t.Fatal(err)
		}
		var listen, refuse []string
		for _, e := range im.Config.Listen {
			listen = append(listen, e.String())
		}
		for _, a := range im.Config.ANA {
			refuse = append(refuse, a.Listen.String())
		}
		if got := strings.Join(listen, " "); got != x.listen {
			t.Errorf("it listens on %s, want %s", got, x.listen)
		}
		if got := strings.Join(refuse, " "); got != x.listen {
			t.Errorf("group 2 is inaccessible at %s, want %s", got, x.listen)
		}
	}
}

// TestFromNVMeTCLIUnlistedGroup: a port of nvmet gives access to the ANA groups that it lists, and to group 1; every
// other one is inaccessible there, as that of a standby whose volume is in use elsewhere.
func TestFromNVMeTCLIUnlistedGroup(t *testing.T) {
	const group = `{"ana": {"state": %q}, "grpid": %d}`
	for _, x := range []struct {
		listed string
		of     int
		want   nvme.ANAState
	}{
		{"", 0, nvme.ANAOptimized}, // a file without ANA
		{"", 1, nvme.ANAOptimized},
		{"", 2, nvme.ANAInaccessible},
		{fmt.Sprintf(group, "optimized", 1), 2, nvme.ANAInaccessible},
		{fmt.Sprintf(group, "optimized", 2), 2, nvme.ANAOptimized},
		{fmt.Sprintf(group, "non-optimized", 2), 2, nvme.ANANonOptimized},
		{fmt.Sprintf(group, "non-optimized", 1), 1, nvme.ANANonOptimized},
	} {
		in := fmt.Sprintf(`{"ports": [{"addr": {"traddr": "192.0.2.1", "trsvcid": "4420", "trtype": "tcp"}, "subsystems": ["nqn.2026-11.org.example:s"],
  "ana_groups": [%s]}], "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1"},
  "namespaces": [{"device": {"path": "/dev/sdb"}, "enable": 1, "ana_grpid": %d, "nsid": 1}]}]}`, x.listed, x.of)
		im, err := FromNVMeTCLI("f", []byte(in), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := im.Config.ANAState(im.Config.Listen[0], uint32(max(x.of, 1))); got != x.want {
			t.Errorf("a namespace of group %d, where the port lists [%s], is %v, want %v", x.of, x.listed, got, x.want)
		}
	}
}

// TestFromNVMeTCLIHostile: whatever text a file contains, what is said of it and made of it doesn't control a terminal.
func TestFromNVMeTCLIHostile(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "nvmetcli.json"))
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`{`), []byte(`{"hosts": [{"nqn": "h", "dhchap_key": "no secret"}, {"nqn": "i", "dhchap_ctrl_key": "k"}],`), 1)
	for _, at := range regexp.MustCompile(`"[^"]*"`).FindAllIndex(b, -1) {
		for _, secrets := range []string{"", "secrets"} {
			text := slices.Concat(b[:at[0]+1], []byte(`\u001b[2J\u009b2J\u202e`), b[at[0]+1:])
			im, err := FromNVMeTCLI("f", text, secrets)
			said := fmt.Sprint(err)
			if err == nil {
				out, err := im.Config.Marshal()
				said += fmt.Sprint(im.Notes, strings.ReplaceAll(string(out), "\n", ""), err)
			}
			if strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsGraphic(r) }) {
				t.Errorf("with control characters in %s: %q", b[at[0]:at[1]], said)
			}
		}
	}
}

// TestFromNVMeTCLISecrets: secrets go to a file of their own, or nowhere, as one of controllers for a host that has
// none.
func TestFromNVMeTCLISecrets(t *testing.T) {
	const in = `{
  "hosts": [
    {"nqn": "nqn.2026-11.org.example:a", "dhchap_dhgroup": "ffdhe2048", "dhchap_hash": "hmac(sha384)",
     "dhchap_key": "DHHC-1:01:Klyt2lDFBqajDAj6PuPkC5GkAPvTN6hKSspehqtPL5Ihp/yN:",
     "dhchap_ctrl_key": "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"},
    {"nqn": "nqn.2026-11.org.example:b"},
    {"nqn": "nqn.2026-11.org.example:c", "dhchap_ctrl_key": "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"}
  ],
  "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1"}}]
}`
	im, err := FromNVMeTCLI("f", []byte(in), "secrets")
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Secrets) != 1 || !strings.HasPrefix(im.Secrets[0].String(), "nqn.2026-11.org.example:a DHHC-1:01:Klyt2l") || im.Secrets[0].Controller == nil {
		t.Errorf("%d hosts with secrets", len(im.Secrets))
	}
	if notes := strings.Join(im.Notes, "\n"); !strings.HasPrefix(notes, "host nqn.2026-11.org.example:c: its secrets are left out") {
		t.Errorf("with a secret of controllers alone: notes %q", im.Notes)
	}
	out, err := im.Config.Marshal()
	want := `authentication:
  secrets: secrets
  hashes:
    - sha384
  dh_groups:
    - ffdhe2048
  optional: true
`
	if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "Klyt2l") {
		t.Errorf("%v\n%s", err, out)
	}
	if im, err = FromNVMeTCLI("f", []byte(in), ""); err != nil || im.Config.Authentication != nil || len(im.Secrets) != 0 ||
		!strings.Contains(strings.Join(im.Notes, "\n"), "example:a: its secrets are left out") {
		t.Errorf("%v, notes %q", err, im.Notes)
	}
}

// TestFromNVMeTCLIManySecrets: a host needs no secret of controllers, and what several hosts use is named once.
func TestFromNVMeTCLIManySecrets(t *testing.T) {
	const secret = `"dhchap_hash": "hmac(sha512)", "dhchap_dhgroup": "ffdhe4096", "dhchap_key": "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"`
	im, err := FromNVMeTCLI("f", []byte(`{
  "hosts": [{"nqn": "nqn.2026-11.org.example:a", `+secret+`}, {"nqn": "nqn.2026-11.org.example:b", `+secret+`}],
  "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1"}}]
}`), "secrets")
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Secrets) != 2 || im.Secrets[0].Controller != nil {
		t.Errorf("%d hosts with secrets", len(im.Secrets))
	}
	if a := im.Config.Authentication; !slices.Equal(a.Hashes, []nvme.AuthHash{nvme.AuthSHA512}) || !slices.Equal(a.DHGroups, []nvme.DHGroup{nvme.DHFFDHE4096}) {
		t.Errorf("they may use %v and %v", a.Hashes, a.DHGroups)
	}
}

// TestFromNVMeTCLINotes: what has no counterpart here is left out and said.
func TestFromNVMeTCLINotes(t *testing.T) {
	im, err := FromNVMeTCLI("f", []byte(`{
  "ports": [{"addr": {"traddr": "192.0.2.1", "trsvcid": "4420", "trtype": "tcp"}, "subsystems": ["nqn.2026-11.org.example:s", "nqn.2026-11.org.example:p"],
    "ana_groups": [{"ana": {"state": "odd"}, "grpid": 2}]}],
  "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1", "cntlid_min": "1", "cntlid_max": "100"},
    "namespaces": [{"device": {"path": "/dev/sdb", "nguid": "ef90"}, "enable": 1, "nsid": 1}],
    "passthru": [{"admin_timeout": 0, "clear_ids": 0, "device": {"path": "(null)"}, "enable": 0, "io_timeout": 0}]},
    {"nqn": "nqn.2026-11.org.example:p", "attr": {"allow_any_host": "1"}, "namespaces": [],
    "passthru": [{"admin_timeout": 0, "clear_ids": 0, "device": {"path": "/dev/nvme0"}, "enable": 1, "io_timeout": 0}]}]
}`), "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"subsystem nqn.2026-11.org.example:s: the range of controller IDs is left out",
		`subsystem nqn.2026-11.org.example:s: the NGUID of namespace 1 is left out: "ef90": want 32 hexadecimal digits, not all 0`,
		"subsystem nqn.2026-11.org.example:p: it passes commands to the controller /dev/nvme0, which isn't supported: its namespaces are left out",
		`port tcp://192.0.2.1:4420: ANA group 2: state "odd": want optimized, non-optimized, inaccessible, persistent-loss or change: it is optimized here`,
	}
	if !slices.Equal(im.Notes, want) {
		t.Errorf("the notes are\n%s, want\n%s", strings.Join(im.Notes, "\n"), strings.Join(want, "\n"))
	}
	if n := im.Config.Subsystems[0].Namespaces[0]; n.NGUID != nil || len(im.Config.ANA) != 0 {
		t.Errorf("it became %+v, with states %v", n, im.Config.ANA)
	}
}

// TestFromNVMeTCLISettings: a setting of a port or a subsystem that is one of the whole target here, or none, is said
// where somebody has set it, and not where nvmet has set it itself.
func TestFromNVMeTCLISettings(t *testing.T) {
	for _, x := range []struct{ trtype, param, attr, want string }{
		{"tcp", `"inline_data_size": "-1", "max_queue_size": "-1", "pi_enable": "0"`, `"qid_max": "128", "pi_enable": "0"`, ""},
		{"tcp", `"inline_data_size": "16384", "max_queue_size": "1024"`, ``, ""},
		{"rdma", `"inline_data_size": "4096", "max_queue_size": "128"`, ``, ""},
		{"tcp", `"inline_data_size": "4096"`, ``, "port tcp://192.0.2.1:4420: inline_data_size of 4096 is left out: here network.in_capsule says it for all"},
		{"rdma", `"inline_data_size": "16384"`, ``, "port rdma://192.0.2.1:4420: inline_data_size of 16384 is left out: here network.in_capsule says it for all"},
		{"tcp", `"max_queue_size": "64"`, ``, "port tcp://192.0.2.1:4420: max_queue_size of 64 is left out: here network.queue_depth says it for all"},
		{"rdma", `"pi_enable": "1"`, ``, "port rdma://192.0.2.1:4420: pi_enable of 1 is left out"},
		{"tcp", ``, `"qid_max": "4"`, "subsystem nqn.2026-11.org.example:s: qid_max of 4 is left out: here limits.queues says it for all"},
		{"tcp", ``, `"pi_enable": "1"`, "subsystem nqn.2026-11.org.example:s: pi_enable of 1 is left out"},
	} {
		in := fmt.Sprintf(`{"ports": [{"addr": {"traddr": "192.0.2.1", "trsvcid": "4420", "trtype": %q}, "param": {%s}, "subsystems": ["nqn.2026-11.org.example:s"]}],
  "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "allowed_hosts": ["nqn.2026-11.org.example:h"], "attr": {%s}}]}`, x.trtype, x.param, x.attr)
		im, err := FromNVMeTCLI("f", []byte(in), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(im.Notes, "\n"); got != x.want {
			t.Errorf("%s, {%s}, {%s}: notes %q, want %q", x.trtype, x.param, x.attr, got, x.want)
		}
	}
}

func TestFromNVMeTCLIMistakes(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", "f:1: "},
		{"{\n\"subsystems\": [}", "f:2: "},
		{"{}", "f: subsystems: there are none"},
		{"[]", "f:1: want object, not array"},
		{"{\n\"subsystems\": {}}", "f:2: subsystems: want array, not object"},
		{"{\n\"subsystems\": [{\"nqn\": 5}]}", "f:2: subsystems.nqn: want string, not number"},
		{`{"ports": [{"ana_groups": [{"grpid": "x"}]}], "subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1"}}]}`, `f: "x": want a number`},
		{`{"subsystems": [{"nqn": "nqn.2026-11.org.example:s"}]}`, "f: subsystems: none allows a host"},
		{`{"subsystems": [{"nqn": "example", "attr": {"allow_any_host": "1"}}]}`, "f: subsystems[0].nqn: "},
		{`{"hosts": [{"nqn": "nqn.2026-11.org.example:h", "dhchap_key": "DHHC-1:09:x"}], "subsystems": [{"nqn": "nqn.2026-11.org.example:s"}]}`, "f: host nqn.2026-11.org.example:h: not a DH-HMAC-CHAP secret"},
	} {
		_, err := FromNVMeTCLI("f", []byte(x.text), "secrets")
		if err == nil || !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%q: %v, want %s…", x.text, err, x.want)
		}
	}
}

func FuzzFromNVMeTCLI(tf *testing.F) {
	f := fuzzing.New(tf)
	b, err := os.ReadFile(filepath.Join("testdata", "nvmetcli.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		im, err := FromNVMeTCLI("f", b, "secrets")
		if err != nil {
			return
		}
		out, err := im.Config.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("again", out); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
	})
}
