package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// hostPackages are what the lab uses on the host: a program, and the package that has it.
var hostPackages = []struct{ program, pkg string }{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"ip", "iproute2"},
	{"depmod", "kmod"},
	{"xz", "xz-utils"},
	{"zstd", "zstd"},
}

// installHost installs those that are missing.
func installHost(ctx context.Context) error {
	var missing []string
	for _, p := range hostPackages {
		if _, err := exec.LookPath(p.program); err != nil {
			missing = append(missing, p.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := output(ctx, "", "apt-get", "update"); err != nil {
		return err
	}
	_, err := output(ctx, "", "apt-get", append([]string{"install", "-y", "--no-install-recommends"}, missing...)...)
	return err
}

// output runs a command of the host in dir and returns what it wrote.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// needless are packages that others depend on, but no file of which gets into an image.
var needless = []string{
	"adduser", "cdebconf", "debconf", "dpkg", "init-system-helpers", "libfile-find-rule-perl",
	"libnumber-compare-perl", "libpam-modules", "libpam-modules-bin", "libperl", "libpython3", "libtext-glob-perl",
	"mailcap", "media-types", "mime-support", "passwd", "perl", "python3", "sysvinit-utils", "tar", "udev", "usrmerge",
}

// closure returns the packages and all that they depend on, as apt would install them on an empty machine.
func closure(ctx context.Context, packages []string) ([]string, error) {
	args := append([]string{
		"-o", "APT::Sandbox::User=root", "-o", "Dir::State::status=/dev/null",
		"--no-install-recommends", "--print-uris", "-y", "install",
	}, packages...)
	out, err := output(ctx, "", "apt-get", args...)
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		// 'URI' NAME_VERSION_ARCHITECTURE.deb SIZE, perhaps a hash; before that come lines for people
		f := strings.Fields(line)
		if len(f) < 3 || line[0] != '\'' {
			continue
		}
		name, _, _ := strings.Cut(f[1], "_")
		if !slices.ContainsFunc(needless, func(p string) bool { return strings.HasPrefix(name, p) }) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all, nil
}

// kernelPackages are those of one kernel.
type kernelPackages struct {
	release  string   // as uname -r says it
	packages []string // one, or, from Debian 14 on, one each for the kernel, its modules and their indexes
}

// findKernel finds the newest kernel of that version that apt has.
func findKernel(ctx context.Context, version string) (kernelPackages, error) {
	const prefix = "linux-image-"
	// Names of other flavours end in -cloud-amd64, say, or in -amd64-dbg.
	pattern := "^" + prefix + regexp.QuoteMeta(version) + `\..*[0-9]-amd64$`
	found, err := output(ctx, "", "sh", "-c", `apt-cache search --names-only "$0" | sort -V | tail -n 1`, pattern)
	if err != nil {
		return kernelPackages{}, err
	}
	image, _, _ := strings.Cut(string(found), " ") // its description follows
	release := strings.TrimPrefix(image, prefix)
	if image == "" {
		return kernelPackages{}, fmt.Errorf("lab: this Debian has no kernel %s; its repositories are in /etc/apt", version)
	}
	depends, err := output(ctx, "", "apt-cache", "depends", "--important", image)
	if err != nil {
		return kernelPackages{}, err
	}
	k := kernelPackages{release: release}
	for part := range strings.FieldsSeq(string(depends)) { // the package itself comes first
		if strings.HasSuffix(part, "-"+release) {
			k.packages = append(k.packages, part)
		}
	}
	return k, nil
}

// download returns the .deb files of the packages, fetching those that the cache lacks.
func download(ctx context.Context, cache string, packages []string) ([]string, error) {
	dir := filepath.Join(cache, "packages")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Each line is 'URI' FILE SIZE HASH. A file that is already in the directory would be omitted.
	args := []string{"-o", "APT::Sandbox::User=root", "download"}
	out, err := output(ctx, cache, "apt-get", append(append(slices.Clone(args), "--print-uris"), packages...)...)
	if err != nil {
		return nil, err
	}
	var debs, missing []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		deb := filepath.Join(dir, f[1])
		debs = append(debs, deb)
		if _, err := os.Stat(deb); err != nil {
			name, _, _ := strings.Cut(f[1], "_")
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		if _, err := output(ctx, dir, "apt-get", append(args, missing...)...); err != nil {
			return nil, err
		}
	}
	return debs, nil
}

// file is a file of a package.
type file struct {
	mode fs.FileMode
	link string // target of a symbolic link
	data []byte
}

// files are files by path, without a leading slash, and with everything under usr as Debian
// has it since 12.
type files map[string]*file

// add reads the files of a package that keep accepts.
func (fs files) add(ctx context.Context, deb string, keep func(name string) bool) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cancel()
		if werr := cmd.Wait(); err == nil && werr != nil && ctx.Err() == nil {
			err = werr
		}
	}()
	for r := tar.NewReader(pipe); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", deb, err)
		}
		name := underUsr(path.Clean(h.Name))
		if h.Typeflag == tar.TypeDir || !keep(name) {
			continue
		}
		f := &file{mode: h.FileInfo().Mode()}
		switch h.Typeflag {
		case tar.TypeReg:
			if f.data, err = io.ReadAll(r); err != nil {
				return fmt.Errorf("%s: %s: %w", deb, name, err)
			}
		case tar.TypeSymlink:
			f.link = h.Linkname
		case tar.TypeLink:
			f.link = "/" + path.Clean(h.Linkname)
		default:
			continue
		}
		fs[name] = f
	}
}

// underUsr returns the name of a file given that /bin, /sbin and /lib are links into /usr.
func underUsr(name string) string {
	for _, dir := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
		if strings.HasPrefix(name, dir) {
			return "usr/" + name
		}
	}
	return name
}

// follow returns the file that name leads to, and its path.
func (fs files) follow(name string) (*file, string) {
	for range 10 {
		f := fs[name]
		if f == nil || f.link == "" {
			return f, name
		}
		if path.IsAbs(f.link) {
			name = underUsr(f.link[1:])
		} else {
			name = underUsr(path.Join(path.Dir(name), f.link))
		}
	}
	return nil, name
}
