package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFromNVMeTCLI(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "nvmetcli.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, notes, err := FromNVMeTCLI("nvmetcli.json", b)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Marshal()
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
`
	if string(out) != want {
		t.Errorf("it became\n%s, want\n%s", out, want)
	}
	all := strings.Join(notes, "\n")
	for _, s := range []string{"1 referrals", "serves every subsystem", `transport "loop"`, "namespace 5 is not enabled"} {
		if !strings.Contains(all, s) {
			t.Errorf("the notes don't say %q:\n%s", s, all)
		}
	}
}

func TestFromNVMeTCLIMistakes(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", "f:1: "},
		{"{\n\"subsystems\": [}", "f:2: "},
		{"{}", "f: subsystems: there are none"},
		{"{\n\"subsystems\": [{\"nqn\": 5}]}", "f:2: subsystems"},
		{`{"subsystems": [{"nqn": "example"}]}`, "f: subsystems[0].nqn: "},
	} {
		_, _, err := FromNVMeTCLI("f", []byte(x.text))
		if err == nil || !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%q: %v, want %s…", x.text, err, x.want)
		}
	}
}

func FuzzFromNVMeTCLI(f *testing.F) {
	b, err := os.ReadFile(filepath.Join("testdata", "nvmetcli.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, _, err := FromNVMeTCLI("f", b)
		if err != nil {
			return
		}
		out, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("again", out); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
	})
}
