package lab

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// Bits of the mode in a cpio header, as in stat.
const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeLink    = 0o120000
)

// writeArchive writes the files, and the directories that they are in, as the "newc" archive that the kernel unpacks
// into its first file system.
func writeArchive(w io.Writer, all files) error {
	b := bufio.NewWriterSize(w, 1<<20)
	inode := 0
	put := func(name string, mode uint32, data []byte) {
		inode++
		fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
		pad(b, 110+len(name)+1)
		b.Write(data)
		pad(b, len(data))
	}
	dirs := map[string]bool{}
	for name := range all {
		for d := path.Dir(name); d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	for _, d := range slices.Sorted(maps.Keys(dirs)) { // a directory sorts before what is in it
		if all[d] == nil {
			put(d, modeDir|0o755, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch f := all[name]; {
		case f.mode.IsDir():
			put(name, modeDir|0o755, nil)
		case f.link != "":
			put(name, modeLink|0o777, []byte(f.link))
		default:
			put(name, modeRegular|uint32(f.mode&fs.ModePerm), f.data)
		}
	}
	put("TRAILER!!!", 0, nil)
	return b.Flush()
}

// pad fills up to a multiple of four after n bytes.
func pad(b *bufio.Writer, n int) {
	for ; n%4 != 0; n++ {
		b.WriteByte(0)
	}
}
