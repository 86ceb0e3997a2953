package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

const (
	secretA = "DHHC-1:01:Klyt2lDFBqajDAj6PuPkC5GkAPvTN6hKSspehqtPL5Ihp/yN:"
	secretB = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
	hostA   = "nqn.2026-11.org.example:a"
	hostB   = "nqn.2026-11.org.example:b"
)

func TestReadSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := CreateSecret("--output", path, secretA+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := CreateSecret("--output", path, secretB); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another: %v", err)
	}
	s, err := ReadSecret(t.Context(), "--dhchap-secret-file", path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.Text() != secretA {
		t.Errorf("read %s, want %s", s.Text(), secretA)
	}
	for mode, ok := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o644: false, 0o660: false, 0o604: false, 0o602: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret(t.Context(), "--dhchap-secret-file", path, 0); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	for content, want := range map[string]string{
		"": "want one line", secretA + "\n" + secretB: "want one line", hostA + " " + secretA: "want one line",
		"# mine\n\n" + secretA[:40]: ":3: not a DH-HMAC-CHAP secret",
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadSecret(t.Context(), "secret_file", path, 0)
		if !errors.Is(err, dhchap.ErrSecret) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secretA[10:20]) {
			t.Errorf("%q: %v", content, err)
		}
	}
	if _, err := ReadSecret(t.Context(), "secret_file", path+".not", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestSecretPipe: a pipe is read, but not waited for longer than asked for, if nobody opens it, or nobody closes it.
func TestSecretPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	late := func(when string) {
		t.Helper()
		_, err := ReadSecret(t.Context(), "secret_file", path, 50*time.Millisecond)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(err.Error(), "secret_file "+path+": nobody has written") {
			t.Errorf("%s: %v", when, err)
		}
	}
	late("nobody writes")
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(secretA); err != nil {
		t.Fatal(err)
	}
	late("it is left open")
	w.Close()
	for _, most := range []time.Duration{0, time.Minute} {
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(path, []byte(secretA), 0) }()
		if s, err := ReadSecret(t.Context(), "secret_file", path, most); err != nil || s.Text() != secretA {
			t.Errorf("at most %v: %v", most, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
}

// TestCreateSecretFull: on a full disk no partial file is left behind, under any name.
func TestCreateSecretFull(t *testing.T) {
	dir := disktest.Tmpfs(t, "64k")
	path := filepath.Join(dir, "secrets")
	err := CreateSecret("--secrets", path, strings.Repeat(hostA+" "+secretA+"\n", 1000))
	if !errors.Is(err, unix.ENOSPC) || !strings.HasPrefix(err.Error(), "--secrets "+path+": no space left") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := CreateSecret("--secrets", path, secretA); err != nil {
		t.Error(err)
	}
}

func TestReadSecrets(t *testing.T) {
	read := func(content string) ([]HostSecrets, error) {
		path := filepath.Join(t.TempDir(), "secrets")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadSecrets(t.Context(), "--dhchap-secrets", path, 0)
	}
	all, err := read("# hosts\n" + hostA + " " + secretA + "\n\n\t" + hostB + "  " + secretB + " " + secretA + "\n")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d, %v", len(all), err)
	}
	if got := all[0].String() + "\n" + all[1].String(); got != hostA+" "+secretA+"\n"+hostB+" "+secretB+" "+secretA {
		t.Error(got)
	}
	if all, err := read("# none\n"); len(all) != 0 || err != nil {
		t.Errorf("%d, %v", len(all), err)
	}
	for content, want := range map[string]string{
		secretA: ":1: want the NQN", hostA + " " + secretA + " " + secretB + " x": ":1: want the NQN",
		"host " + secretA:        "not the NQN",
		"\n" + hostA + " secret": ":2: host " + hostA + ": not a DH-HMAC-CHAP secret",
		hostA + " " + secretA + "\n" + hostA + " " + secretB: ":2: host " + hostA + " is there twice",
	} {
		_, err := read(content)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secretA[10:20]) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// Parsed secrets are formatted so that they parse to the same again.
func FuzzReadSecrets(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(hostA + " " + secretA + "\n# a comment\n" + hostB + " " + secretB + " " + secretA)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseSecrets("secrets", "file", []byte(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for i := range all {
			again.WriteString(all[i].String() + "\n")
		}
		if same, err := parseSecrets("secrets", "file", []byte(again.String())); err != nil || len(same) != len(all) {
			t.Fatalf("%d hosts became %d, %v", len(all), len(same), err)
		}
	})
}
