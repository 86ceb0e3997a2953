package fuzzing

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// journal is the entry of a target's corpus with what the current world has been fed. It is complete after each
// addition, whatever happens to the process: it is in memory that maps the file, because a system call to write each
// input took as long as many targets take to process it. The file ends in blank lines, which Go ignores.
type journal struct {
	file *os.File
	mem  []byte // all of the file
	end  int    // where the next input goes
	buf  []byte
	seq  []byte
}

const (
	journalTail = "\")\n"  // ends the entry; the next input overwrites it
	journalSize = 64 << 10 // bytes, at first
)

func newJournal(target string) (*journal, error) {
	path := filepath.Join(entries(target), fmt.Sprintf("world-%d", os.Getpid()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	j := &journal{file: f}
	err = j.grow(journalSize)
	return j, err
}

// grow grows the file to size bytes. The new part is blank lines.
func (j *journal) grow(size int) error {
	had := len(j.mem)
	if err := j.unmap(); err != nil {
		return err
	}
	if err := j.file.Truncate(int64(size)); err != nil {
		return err
	}
	var err error
	j.mem, err = unix.Mmap(int(j.file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		blank(j.mem[had:])
	}
	return err
}

func (j *journal) unmap() error {
	if j.mem == nil {
		return nil
	}
	err := unix.Munmap(j.mem)
	j.mem = nil
	return err
}

func blank(b []byte) {
	for i := range b {
		b[i] = '\n'
	}
}

func (j *journal) path() string { return j.file.Name() }

// begin starts the entry of a new world.
func (j *journal) begin(how uint8) error {
	blank(j.mem[:min(j.end+len(journalTail), len(j.mem))])
	j.end = 0
	j.buf = fmt.Appendf(j.buf[:0], "%sbyte(%q)\n[]byte(\"", corpusHead, how|Sequence)
	return j.write()
}

// add appends an input that is about to be fed.
func (j *journal) add(input []byte) error {
	j.seq = appendInput(j.seq[:0], input)
	j.buf = appendQuoted(j.buf[:0], j.seq)
	return j.write()
}

// appendQuoted appends b as it appears between the quotes of a string literal. strconv takes ten times as long.
func appendQuoted(to, b []byte) []byte {
	const digits = "0123456789abcdef"
	for _, c := range b {
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			to = append(to, c)
		} else {
			to = append(to, '\\', 'x', digits[c>>4], digits[c&15])
		}
	}
	return to
}

// write overwrites the tail with buf, and appends the tail again.
func (j *journal) write() error {
	n := len(j.buf)
	if need := j.end + n + len(journalTail); need > len(j.mem) {
		if err := j.grow(2 * need); err != nil {
			return err
		}
	}
	copy(j.mem[j.end:], append(j.buf, journalTail...))
	j.end += n
	return nil
}

// keep keeps the entry, without the blank lines.
func (j *journal) keep() error {
	if err := j.unmap(); err != nil {
		return err
	}
	if err := j.file.Truncate(int64(j.end + len(journalTail))); err != nil {
		return err
	}
	return j.file.Close()
}

// remove removes the entry: its world, and all before it, ended without failure.
func (j *journal) remove() error {
	if err := j.unmap(); err != nil {
		return err
	}
	if err := os.Remove(j.path()); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(j.path())) // if it is empty
	return j.file.Close()
}

// appendInput appends an input in the form that split reads. It is no longer than maxInput.
func appendInput(b, input []byte) []byte {
	return append(append(b, byte(len(input)), byte(len(input)>>8)), input...)
}
