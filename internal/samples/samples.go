// Package samples reads, for tests, the captures of real peers that the tree keeps in testdata directories.
package samples

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

// Files returns the classic pcap files below dir, or below the directory that the environment variable names, so that
// other captures can be tried.
func Files(tb testing.TB, dir, variable string) (paths []string) {
	tb.Helper()
	if d := os.Getenv(variable); d != "" {
		dir = d
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".pcap" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		tb.Fatalf("%d captures in %s: %v", len(paths), dir, err)
	}
	return paths
}

// Frames yields the frames of a classic pcap file, each in memory of its own. The last frame may be truncated, as when
// a capture was interrupted.
func Frames(tb testing.TB, path string) iter.Seq[[]byte] {
	tb.Helper()
	return func(yield func([]byte) bool) {
		tb.Helper()
		file, err := os.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		defer file.Close()
		r, err := pcapgo.NewReader(file)
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		for {
			b, _, err := r.ReadPacketData()
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			} else if err != nil {
				tb.Fatalf("%s: %v", path, err)
			}
			if !yield(b) {
				return
			}
		}
	}
}
