package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// kernelsEnv lists the versions that tests run against, as in "7.3 6.12", instead of Debian 12's two. The sources of
// the host's apt must have them: Debian 13's backports have the newest, for example.
const kernelsEnv = "NVMEOF_KERNELS"

// Kernels are the versions that tests run against; a Debian release may lack one.
var Kernels = func() []string {
	if named := strings.Fields(os.Getenv(kernelsEnv)); len(named) > 0 {
		return named
	}
	return []string{"6.12", "6.1"}
}()

// Image is a kernel and its first file system, ready to boot.
type Image struct {
	Version string // as asked for: 6.1, say
	Release string // as uname -r says it
	Kernel  string // path of the ELF kernel
	Files   string // path of the archive, without init
	Init    string // path of an archive with /init, to be appended to it
}

// Prepare installs what the host lacks, downloads Debian's packages, and makes the images that the cache doesn't have:
// a minute or two the first time, some seconds later. WorkDir must have been called. A version that this Debian doesn't
// have is left out, if it has another. The process that Isolate started gets what its parent prepared.
func Prepare(ctx context.Context, versions ...string) (map[string]*Image, error) {
	list := filepath.Join(os.TempDir(), "images.json")
	if Isolated() {
		return loadImages(list)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("lab: it installs packages and makes network devices: run it as root")
	}
	if err := installHost(ctx); err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "nvmeof-lab")
	kernels, all, err := resolve(ctx, versions)
	if err != nil { // perhaps its package lists were never fetched
		if _, uerr := output(ctx, "", "apt-get", "update"); uerr != nil {
			return nil, errors.Join(err, uerr)
		}
		if kernels, all, err = resolve(ctx, versions); err != nil {
			return nil, err
		}
	}
	init, err := buildInit(ctx)
	if err != nil {
		return nil, err
	}
	images := map[string]*Image{}
	for v, k := range kernels {
		debs, err := download(ctx, cache, append(k.packages, all...))
		if err != nil {
			return nil, err
		}
		image, err := cached(ctx, cache, v, k.release, debs)
		if err != nil {
			return nil, err
		}
		image.Init = init
		images[v] = image
	}
	b, err := json.Marshal(images)
	if err != nil {
		return nil, err
	}
	return images, os.WriteFile(list, b, 0o600)
}

// resolve returns the packages of the kernels, by version, and all others.
func resolve(ctx context.Context, versions []string) (kernels map[string]kernelPackages, all []string, err error) {
	kernels = map[string]kernelPackages{}
	var lacking error
	for _, v := range versions {
		k, err := findKernel(ctx, v)
		if err != nil {
			lacking = errors.Join(lacking, err)
			continue
		}
		kernels[v] = k
	}
	if len(kernels) == 0 {
		return nil, nil, lacking
	}
	all, err = closure(ctx, packages)
	return kernels, all, err
}

func loadImages(name string) (images map[string]*Image, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(b, &images)
	return images, err
}

// buildInit builds the guest's first program, and returns the path of an archive with it.
func buildInit(ctx context.Context) (string, error) {
	out := filepath.Join(os.TempDir(), "init")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out,
		"github.com/nvme-anywhere/nvmeof/tests/linux/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("lab: build of the guest's init: %w\n%s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := writeArchive(&b, files{"init": &file{mode: 0o755, data: data}}); err != nil {
		return "", err
	}
	return out + ".cpio", os.WriteFile(out+".cpio", b.Bytes(), 0o600)
}

// cached returns the image of these packages and contents, and makes it if it doesn't exist.
func cached(ctx context.Context, cache, version, release string, debs []string) (*Image, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, "2", tools, besides, links, modules) // the number is the version of how images are made
	for _, d := range debs {
		fmt.Fprintln(sum, filepath.Base(d))
	}
	base := filepath.Join(cache, version+"-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	image := &Image{Version: version, Release: release, Kernel: base + ".vmlinux", Files: base + ".cpio"}
	now := time.Now()
	if os.Chtimes(image.Kernel, now, now) == nil && os.Chtimes(image.Files, now, now) == nil {
		return image, nil
	}
	prune(cache, now.Add(-unusedFor))
	if err := image.make(ctx, debs); err != nil {
		return nil, err
	}
	return image, nil
}

// unusedFor is how long an unused image stays in the cache.
const unusedFor = 7 * 24 * time.Hour

// prune removes the images that have been unused for longer.
func prune(cache string, since time.Time) {
	for _, kind := range []string{"*.vmlinux", "*.cpio"} {
		names, _ := filepath.Glob(filepath.Join(cache, kind))
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.ModTime().Before(since) {
				_ = os.Remove(name)
			}
		}
	}
}

// make makes both files; the archive comes last, and by renaming, so that one that exists is complete.
func (i *Image) make(ctx context.Context, debs []string) error {
	source := files{}
	for _, d := range debs {
		if err := source.add(ctx, d, worthKeeping); err != nil {
			return err
		}
	}
	boot := cmp.Or(source["boot/vmlinuz-"+i.Release], source["usr/lib/modules/"+i.Release+"/vmlinuz"])
	if boot == nil {
		return fmt.Errorf("lab: no kernel %s in its packages", i.Release)
	}
	kernel, err := vmlinux(ctx, boot.data)
	if err != nil {
		return err
	}
	if err := os.WriteFile(i.Kernel, kernel, 0o644); err != nil {
		return err
	}
	image, err := userland(ctx, source)
	if err != nil {
		return err
	}
	if err := addModules(ctx, image, source, i.Release, modules); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := writeArchive(&b, image); err != nil {
		return err
	}
	if err := os.WriteFile(i.Files+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(i.Files+".new", i.Files)
}

// worthKeeping reports whether a file of a package may get into an image.
func worthKeeping(name string) bool {
	if strings.HasPrefix(name, "usr/lib/modules/") && strings.Contains(name, "/kernel/") {
		for _, dir := range []string{"/kernel/arch/", "/kernel/block/", "/kernel/crypto/", "/kernel/fs/", "/kernel/lib/", "/kernel/net/"} {
			if strings.Contains(name, dir) {
				return true
			}
		}
		_, rest, _ := strings.Cut(name, "/kernel/drivers/")
		dir, _, _ := strings.Cut(rest, "/")
		switch dir {
		case "infiniband", "nvme", "block", "virtio", "char", "net", "dma", "dca", "nvdimm", "dax", "acpi":
			return true
		}
		return false
	}
	for _, dir := range []string{"boot/vmlinuz", "etc/", "usr/bin/", "usr/sbin/", "usr/lib/", "usr/lib64/"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// userland picks the tools, the libraries that they need, and busybox's names for the rest.
func userland(ctx context.Context, source files) (files, error) {
	image := files{}
	for _, dir := range []string{"dev", "mnt", "proc", "root", "run", "sys", "tmp"} {
		image[dir] = &file{mode: os.ModeDir}
	}
	for name, to := range links {
		image[name] = &file{link: to}
	}
	for _, t := range tools {
		if err := image.take(source, "usr/"+t); err != nil {
			return nil, err
		}
	}
	for _, name := range besides {
		if err := image.take(source, name); err != nil {
			return nil, err
		}
	}
	image["etc/passwd"] = &file{mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\n")}
	image["etc/group"] = &file{mode: 0o644, data: []byte("root:x:0:\n")}
	image["etc/hosts"] = &file{mode: 0o644, data: []byte("127.0.0.1 localhost\n")}
	applets, err := applets(ctx, image["usr/bin/busybox"].data)
	if err != nil {
		return nil, err
	}
	for _, a := range applets {
		if image["usr/bin/"+a] == nil && image["usr/sbin/"+a] == nil {
			image["usr/bin/"+a] = &file{link: "busybox"}
		}
	}
	return image, nil
}

// libraryDirs are where Debian has libraries.
var libraryDirs = []string{"usr/lib/x86_64-linux-gnu/", "usr/lib64/", "usr/lib/"}

// take puts a file into the image, under the name that was asked for, with the libraries that it needs.
func (fs files) take(source files, name string) error {
	if fs[name] != nil {
		return nil
	}
	f, at := source.follow(name)
	if f == nil {
		return fmt.Errorf("lab: no package has %s (%s)", name, at)
	}
	fs[name] = f
	if !bytes.HasPrefix(f.data, []byte("\x7fELF")) {
		return nil
	}
	needed, err := libraries(f.data)
	if err != nil {
		return fmt.Errorf("lab: %s: %w", name, err)
	}
	for _, lib := range needed {
		if err := fs.takeLibrary(source, lib, path.Dir(at)+"/"); err != nil {
			return fmt.Errorf("%w, which %s needs", err, name)
		}
	}
	return nil
}

func (fs files) takeLibrary(source files, lib, beside string) error {
	if path.IsAbs(lib) { // the dynamic linker
		return fs.take(source, underUsr(lib[1:]))
	}
	for _, dir := range append(libraryDirs, beside, libraryDirs[0]+"ceph/") {
		if f, _ := source.follow(dir + lib); f != nil {
			return fs.take(source, dir+lib)
		}
	}
	return fmt.Errorf("lab: no package has %s", lib)
}

// libraries returns the shared libraries that an ELF file names, and its dynamic linker.
func libraries(data []byte) ([]string, error) {
	e, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	names, err := e.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	if s := e.Section(".interp"); s != nil {
		b, err := s.Data()
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimRight(string(b), "\x00"))
	}
	return names, nil
}

// applets asks busybox for the names that it answers to.
func applets(ctx context.Context, busybox []byte) ([]string, error) {
	dir, err := os.MkdirTemp("", "lab-busybox-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "busybox")
	if err := os.WriteFile(name, busybox, 0o755); err != nil {
		return nil, err
	}
	out, err := output(ctx, "", name, "--list")
	return strings.Fields(string(out)), err
}
