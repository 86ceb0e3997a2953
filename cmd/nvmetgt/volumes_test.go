package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// A path that ctl is given counts from where ctl runs; what isn't one stays as it is.
func TestAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("a:colon", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"disk.img":                              "DIR/disk.img",
		"./disk.img":                            "DIR/disk.img",
		"../disk.img":                           filepath.Dir(dir) + "/disk.img",
		"/disk.img":                             "/disk.img",
		"file:disk.img":                         "file:DIR/disk.img",
		"pmem:disk.img,mode=inplace":            "pmem:DIR/disk.img,mode=inplace",
		"delay:1ms:check:pmem:disk.img":         "delay:1ms:check:pmem:DIR/disk.img",
		"fail:read@1:disk.img":                  "fail:read@1:DIR/disk.img",
		"a:colon":                               "DIR/a:colon",
		"dir/b:colon":                           "DIR/dir/b:colon",
		"mem:1GiB":                              "mem:1GiB",
		"delay:1ms:null:1TiB":                   "delay:1ms:null:1TiB",
		"men:1GiB" /* misspelt, and no file */ : "men:1GiB",
		"pmem:":                                 "pmem:",
		"delay:1ms":                             "delay:1ms",
	} {
		got, err := absolute(spec)
		if want := strings.Replace(want, "DIR", dir, 1); err != nil || got != want {
			t.Errorf("absolute(%q) is %q, %v; want %q", spec, got, err, want)
		}
	}
}

// TestNoSuchFile: what creates a file is said as the configuration says it, which flags or a file have given.
func TestNoSuchFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for mark, want := range map[string]string{
		"":   "volume nope.img: no such file: check the name, or create it with a size, as size: 1GiB",
		"--": "--volume nope.img: no such file: check the name, or create it with a size, as --size 1GiB",
	} {
		s := &server{mark: mark}
		if _, err := s.openExport(exportKey{}, &config.Namespace{Volume: "nope.img"}); err == nil || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
