package nvme

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestCheckNQN(t *testing.T) {
	for _, good := range []string{
		DiscoveryNQN, "nqn.2024-01.com.example:disk1", "nqn.2026-01.lab:golden", "nqn.2014-08.com.example:nvme.host.sys.xyz",
		"nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", NewHostID().NQN(),
		"nqn.2024-01.com.example:" + strings.Repeat("x", MaxNQN-24),
	} {
		if err := CheckNQN(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		"":                                                          "empty",
		"iqn.2024-01.com.example:disk1":                             `begin with "nqn."`,
		"nqn.2024-13.com.example:disk1":                             "year and month",
		"nqn.2024-00.com.example:disk1":                             "year and month",
		"nqn.24-01.com.example:disk1":                               "year and month",
		"nqn.2024-011.com.example:disk1":                            "year and month",
		"nqn.2024_01.com.example:disk1":                             "year and month",
		"nqn.2o24-01.com.example:disk1":                             "year and month",
		"nqn.20/4-01.com.example:disk1":                             "year and month",
		"nqn.20:4-01.com.example:disk1":                             "year and month",
		"nqn.2024-20.com.example:disk1":                             "year and month",
		"nqn.2024-01..com.example:d":                                "domain name",
		"nqn.2024-01.com.example.:d":                                "domain name",
		"nqn.2024-01.com.example:d\x7f":                             "control",
		UUIDPrefix + "f81d4fae-7dec-11d0-a765-00a0c91e6bfg":         "UUID",
		"nqn.2024-01":                                               "year and month",
		"nqn.2024-01.:disk1":                                        "domain name",
		"nqn.2024-01.com..example:d":                                "domain name",
		"nqn.2024-01.com.example:my disk":                           "space",
		"nqn.2024-01.com.example:d\n":                               "control",
		"nqn.2024-01.com.example:\u009b2J":                          "control",
		"nqn.2024-01.com.example:\u202ed":                           "invisible",
		"nqn.2024-01.com.example:\xff":                              "UTF-8",
		UUIDPrefix + "1234":                                         "UUID",
		UUIDPrefix + "f81d4fae7dec11d0a76500a0c91e6bf6":             "UUID",
		"nqn.2024-01.com.example:" + strings.Repeat("x", MaxNQN-23): "224 bytes",
	} {
		err := CheckNQN(bad)
		if !errors.Is(err, ErrNQN) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want it to say %q", bad, err, why)
		}
	}
}

// TestCheckSubNQN: hosts may connect to subsystems of any name that Linux's target takes for one.
func TestCheckSubNQN(t *testing.T) {
	for _, good := range []string{DiscoveryNQN, "testnqn", "nvme-test-target", "nqn.2020-20.com.example:disk", strings.Repeat("x", MaxNQN)} {
		if err := CheckSubNQN(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, why := range map[string]string{
		"": "empty", "my disk": "space", "disk\n": "control", "disk\x00": "control", "\u009b2Jdisk": "control", "disk\u200b": "invisible", "\xff": "UTF-8", strings.Repeat("x", MaxNQN+1): "224 bytes",
	} {
		if err := CheckSubNQN(bad); !errors.Is(err, ErrNQN) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want it to say %q", bad, err, why)
		}
	}
}

func TestHostID(t *testing.T) {
	if (HostID{}).IsZero() != true || NewHostID().IsZero() {
		t.Error("zero")
	}
	if _, err := ParseHostID("x"); err == nil || !strings.Contains(err.Error(), "host ID") {
		t.Errorf("parse: %v", err)
	}
	if _, ok := HostIDOf("nqn.2024-01.com.example:disk1"); ok {
		t.Error("an NQN of the first form has no UUID")
	}
}

// TestTextHarmless: names that a peer sends contain nothing that controls a terminal.
func TestTextHarmless(t *testing.T) {
	for field, want := range map[string]string{
		"disk \x1b]0;gotcha\a  \x00\x1b": "disk ?]0;gotcha?",
		"a\r\nb\x7f":                     "a??b?",
		"\x9b2J\u009b2J":                 "?2J?2J",
		"a\u202eb\u2066c\u200bd\u2028e":  "a?b?c?d?e",
		"nqn.2026-11.org.example:größe":  "nqn.2026-11.org.example:größe",
	} {
		if got := Text([]byte(field)); got != want {
			t.Errorf("%q is %q, want %q", field, got, want)
		}
	}
}

func TestPadded(t *testing.T) {
	b := make([]byte, 8)
	PutPadded(b, "a\nb")
	if string(b) != "a?b     " || Text(b) != "a?b" {
		t.Errorf("%q", b)
	}
	PutPadded(b, "\x1f ~\x7f\x80")
	if string(b) != "? ~??   " {
		t.Errorf("%q", b)
	}
	PutPadded(b, "123456789")
	if string(b) != "12345678" {
		t.Errorf("%q", b)
	}
	if err := PutText(b, "12345678"); err == nil {
		t.Error("8 bytes and a NUL don't fit in 8")
	}
	if err := PutText(b, "1234567"); err != nil || Text(b) != "1234567" {
		t.Errorf("%q, %v", b, err)
	}
	for s, good := range map[string]bool{" ~": true, "\x1f": false, "\x7f": false, "\n": false, "12345678": true, "123456789": false} {
		if err := CheckPadded("serial number", s, 8); (err == nil) != good {
			t.Errorf("%q: %v", s, err)
		}
	}
	if CheckPadded("serial number", "0123456789012345678901", 20) == nil || CheckPadded("model", "é", 40) == nil || CheckPadded("model", "x", 40) != nil {
		t.Error("CheckPadded")
	}
}

func FuzzCheckNQN(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(DiscoveryNQN)
	f.Add(UUIDPrefix)
	f.Fuzz(func(t *testing.T, s string) {
		if CheckNQN(s) == nil && (len(s) > MaxNQN || !strings.HasPrefix(s, "nqn.")) {
			t.Fatalf("%q passed", s)
		}
	})
}
