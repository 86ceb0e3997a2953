package lab

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestArchive: cpio reads what writeArchive wrote.
func TestArchive(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio here")
	}
	var b bytes.Buffer
	err = writeArchive(&b, files{
		"bin":          {link: "usr/bin"},
		"proc":         {mode: os.ModeDir},
		"usr/bin/tool": {mode: 0o755, data: []byte("five!")},
		"usr/bin/sh":   {link: "tool"},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(cpio, "-id", "--quiet", "--no-absolute-filenames")
	cmd.Dir, cmd.Stdin = dir, &b
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "bin/sh")); err != nil || string(data) != "five!" {
		t.Errorf("bin/sh holds %q, %v", data, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "usr/bin/tool")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("usr/bin/tool: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "proc")); err != nil || !info.IsDir() {
		t.Errorf("proc: %v, %v", info, err)
	}
}

func TestDependencies(t *testing.T) {
	info := "license=GPL\x00depends=ib_core,nvme-fabrics\x00softdep=pre: crc32c post: virtio_mem \x00depends=\x00"
	want := []string{"ib_core", "nvme-fabrics", "crc32c", "virtio_mem"}
	if got := dependencies([]byte(info)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFollow(t *testing.T) {
	tool := &file{mode: 0o755}
	fs := files{
		"usr/lib/libx.so.1":   {link: "libx.so.1.2"},
		"usr/lib/libx.so.1.2": tool,
		"usr/bin/absolute":    {link: "/lib/libx.so.1"},
		"usr/bin/up":          {link: "../lib/libx.so.1"},
		"usr/bin/loop":        {link: "loop"},
		"usr/bin/nowhere":     {link: "gone"},
	}
	for _, name := range []string{"usr/lib/libx.so.1.2", "usr/lib/libx.so.1", "usr/bin/absolute", "usr/bin/up"} {
		if f, at := fs.follow(name); f != tool || at != "usr/lib/libx.so.1.2" {
			t.Errorf("%s leads to %s, %v", name, at, f)
		}
	}
	for _, name := range []string{"usr/bin/loop", "usr/bin/nowhere", "usr/bin/none"} {
		if f, at := fs.follow(name); f != nil {
			t.Errorf("%s leads to %s", name, at)
		}
	}
}

// TestVmlinux: wrong kernels are errors; a payload that isn't compressed is returned as it is.
func TestVmlinux(t *testing.T) {
	image := make([]byte, 4096)
	image[0x1f1] = 1
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(image[0x248:], 100)
	binary.LittleEndian.PutUint32(image[0x24c:], 54)
	copy(image[1024+100:], "\x7fELF"+strings.Repeat("k", 46))
	elf, err := vmlinux(t.Context(), image)
	if err != nil || len(elf) != 50 || !bytes.HasPrefix(elf, []byte("\x7fELFkk")) {
		t.Errorf("%q, %v", elf, err)
	}
	binary.LittleEndian.PutUint32(image[0x24c:], 1<<20)
	if _, err := vmlinux(t.Context(), image); err == nil {
		t.Error("a payload beyond the end was taken")
	}
	if _, err := vmlinux(t.Context(), image[:600]); err == nil {
		t.Error("a short kernel was taken")
	}
	copy(image[0x202:], "none")
	if _, err := vmlinux(t.Context(), image); err == nil {
		t.Error("a kernel that is none was taken")
	}
}
