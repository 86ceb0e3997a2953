package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// archiveLimit limits the archive: tens of MiB are enough.
const archiveLimit = 48 << 20

// block is the block size of the volumes.
const block = 4096

var errEnough = errors.New("enough")

// makeArchive packs the source of the Go toolchain into a tar file, up to archiveLimit, and
// returns its size and SHA-256.
func makeArchive(path string) (size int64, sum string, err error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return 0, "", err
	}
	src := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	f, err := os.Create(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	w := tar.NewWriter(io.MultiWriter(f, h))
	err = filepath.WalkDir(src, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		n, err := addFile(w, src, p)
		if size += n; err == nil && size > archiveLimit {
			return errEnough
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return 0, "", err
	}
	if err := w.Close(); err != nil {
		return 0, "", err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	// Namespaces take whole blocks; trailing zeroes are part of a tar file.
	pad := make([]byte, -info.Size()&(block-1))
	if _, err := io.MultiWriter(f, h).Write(pad); err != nil {
		return 0, "", err
	}
	return info.Size() + int64(len(pad)), hex.EncodeToString(h.Sum(nil)), f.Close()
}

func addFile(w *tar.Writer, root, path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return 0, err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))}); err != nil {
		return 0, err
	}
	_, err = w.Write(b)
	return int64(len(b)), err
}

// sumFile returns the SHA-256 of the first n bytes of a file.
func sumFile(path string, n int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, n); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
