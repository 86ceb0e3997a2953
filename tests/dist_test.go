package tests

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// released runs make dist, once, and returns where the result is.
func released(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"dpkg-deb", "xz"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("packages are made by Debian's tools, and " + p + " is not here")
		}
	}
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "nvme-anywhere-v0.0-test2-linux-amd64.tar.gz"), "left of another version")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../packaging/dist.sh", dir, "v0.0-test", "-s -w -X "+module+"/internal/version.Version=v0.0-test")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return dir
}

// A release has static programs for both architectures; its package can be installed, run, upgraded, removed and
// purged.
func TestRelease(t *testing.T) {
	dir := released(t)
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		name := "nvme-anywhere-v0.0-test-linux-" + arch
		run(t, dir, "tar", "-xzf", name+".tar.gz")
		for _, program := range []string{"nvmetgt", "nvmeinit"} {
			checkStatic(t, filepath.Join(dir, name, "bin", program), machine)
		}
		fields := run(t, dir, "dpkg-deb", "-f", "nvme-anywhere_0.0+test_"+arch+".deb", "Version", "Architecture")
		if fields != "Version: 0.0+test\nArchitecture: "+arch+"\n" {
			t.Errorf("the package says\n%s", fields)
		}
	}
	if said := run(t, dir, "sha256sum", "-c", "SHA256SUMS"); strings.Count(said, ": OK\n") != 4 {
		t.Errorf("two tar files and two packages are released, and SHA256SUMS is of\n%s", said)
	}
	checkLinks(t, filepath.Join(dir, "nvme-anywhere-v0.0-test-linux-amd64/share/doc/nvme-anywhere"))
	if said := run(t, dir, filepath.Join("nvme-anywhere-v0.0-test-linux-"+runtime.GOARCH, "bin/nvmetgt"), "--version"); !strings.Contains(said, "v0.0-test") {
		t.Errorf("its version is %s", said)
	}
	t.Run("package", func(t *testing.T) {
		installPackage(t, filepath.Join(dir, "nvme-anywhere_0.0+test_"+runtime.GOARCH+".deb"))
	})
}

// run runs a command, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if !filepath.IsAbs(name) && strings.Contains(name, "/") {
		cmd.Path = filepath.Join(dir, name)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// checkStatic checks that a program needs nothing but the kernel of a machine.
func checkStatic(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != machine {
		t.Errorf("%s is for %v", path, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s isn't static: %v", path, p.Type)
		}
	}
}

// checkLinks checks that what the documents in a directory link to is in the release too.
func checkLinks(t *testing.T, docs string) {
	t.Helper()
	found := 0
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			for _, m := range link.FindAllStringSubmatch(string(readFile(t, path)), -1) {
				found++
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); m[1] != "" && err != nil {
					t.Errorf("%s: link to %s: %v", path, m[1], err)
				}
			}
		}
	}
	if found == 0 {
		t.Errorf("no links in %s", docs)
	}
}

// installPackage does everything with a package in a copy of this machine made by an overlay file system: nothing of it
// is left here. Network, mounts and processes are the copy's own.
func installPackage(t *testing.T, deb string) {
	if os.Getuid() != 0 {
		t.Skip("to install a package takes root")
	}
	work := t.TempDir()
	script, err := filepath.Abs("package.sh")
	if err != nil {
		t.Fatal(err)
	}
	// An overlay's work directory can't be on an overlay, so it is in memory.
	const copied = `set -e
mount -t tmpfs none "$1" && cd "$1" && mkdir upper work root
mount -t overlay none -o lowerdir=/,upperdir=upper,workdir=work root || exit 77
mount --rbind /dev root/dev && mount -t tmpfs none root/run && mount -t tmpfs none root/tmp
cp "$2" root/tmp/package.deb && cp "$3" root/tmp/package.sh
exec chroot root /bin/sh /tmp/package.sh /tmp/package.deb`
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
		"/bin/sh", "-c", copied, "sh", work, deb, script)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := begin(starting, cmd); err != nil {
		t.Skipf("to install a package takes unshare: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		if strings.Contains(out.String(), "unshare failed") || cmd.ProcessState.ExitCode() == 77 {
			t.Skipf("no namespaces or overlays here: %s", out.String())
		}
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "== done") {
		t.Errorf("it ended early:\n%s", out.String())
	}
	t.Log(out.String())
}
