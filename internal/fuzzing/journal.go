package fuzzing

import (
	"fmt"
	"os"
	"path/filepath"
)

// journal is the entry of a target's corpus that holds what the present world has been fed. It
// is whole after each write, whatever becomes of the process.
type journal struct {
	file *os.File
	end  int64 // where the next input belongs
	buf  []byte
	seq  []byte
}

// journalTail ends the entry; the next input is written over it.
const journalTail = "\")\n"

func newJournal(target string) (*journal, error) {
	path := filepath.Join(entries(target), fmt.Sprintf("world-%d", os.Getpid()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	return &journal{file: f}, err
}

func (j *journal) path() string { return j.file.Name() }

// begin begins the entry of a new world.
func (j *journal) begin(how uint8) error {
	j.buf = fmt.Appendf(j.buf[:0], "%sbyte(%q)\n[]byte(\"", corpusHead, how|Sequence)
	j.end = 0
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	return j.write()
}

// add adds an input that is about to be fed.
func (j *journal) add(input []byte) error {
	j.seq = appendInput(j.seq[:0], input)
	j.buf = appendQuoted(j.buf[:0], j.seq)
	return j.write()
}

// appendQuoted appends b as it stands between the quotes of a string literal. strconv does the same in ten times the time.
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

func (j *journal) write() error {
	n := int64(len(j.buf))
	if _, err := j.file.WriteAt(append(j.buf, journalTail...), j.end); err != nil {
		return err
	}
	j.end += n
	return nil
}

// remove removes the entry: its world, and all before it, ended well.
func (j *journal) remove() error {
	if err := os.Remove(j.path()); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(j.path())) // if it is empty
	return j.file.Close()
}
