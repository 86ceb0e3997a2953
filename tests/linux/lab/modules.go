package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// addModules puts the wanted kernel modules and those that they depend on into the image,
// decompressed, with the indexes of depmod. release is that of the kernel, as uname -r says it.
func addModules(ctx context.Context, image, kernel files, release string, wanted []string) error {
	dir := "usr/lib/modules/" + release + "/"
	byName := map[string]string{}
	for name := range kernel {
		if base, _, ok := strings.Cut(path.Base(name), ".ko"); ok {
			byName[moduleName(base)] = name
		}
	}
	todo := append([]string(nil), wanted...)
	for len(todo) > 0 {
		name := byName[moduleName(todo[0])]
		todo = todo[1:]
		place := strings.TrimSuffix(name, ".xz")
		if name == "" || image[place] != nil {
			continue // built in, not of this kernel, or already there
		}
		data, err := decompress(ctx, kernel[name].data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		image[place] = &file{mode: 0o644, data: data}
		todo = append(todo, dependencies(data)...)
	}
	for _, index := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if f := kernel[dir+index]; f != nil {
			image[dir+index] = f
		}
	}
	return index(ctx, image, dir, release)
}

// moduleName returns the name that the kernel gives a module: files may have a dash in it.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// dependencies returns the modules that a module says it needs, or wants first.
func dependencies(module []byte) (names []string) {
	for entry := range bytes.SplitSeq(module, []byte{0}) {
		if v, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(v) > 0 {
			names = append(names, strings.Split(string(v), ",")...)
		}
		if v, ok := bytes.CutPrefix(entry, []byte("softdep=")); ok {
			for word := range strings.FieldsSeq(string(v)) {
				if !strings.HasSuffix(word, ":") {
					names = append(names, word)
				}
			}
		}
	}
	return names
}

// index runs depmod over the modules in the image.
func index(ctx context.Context, image files, dir, release string) error {
	tmp, err := os.MkdirTemp("", "lab-modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, f := range image {
		if !strings.HasPrefix(name, dir) {
			continue
		}
		to := filepath.Join(tmp, strings.TrimPrefix(name, "usr/"))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.data, 0o644); err != nil {
			return err
		}
	}
	if _, err := output(ctx, "", "depmod", "-b", tmp, release); err != nil {
		return err
	}
	made, err := filepath.Glob(filepath.Join(tmp, "lib", "modules", release, "modules.*"))
	if err != nil {
		return err
	}
	for _, f := range made {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		image[dir+filepath.Base(f)] = &file{mode: 0o644, data: data}
	}
	return nil
}
