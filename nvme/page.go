package nvme

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// PageSize is the size of an identify page, and of the memory page that MDTS counts in when
// CAP.MPSMIN is 0, as it is on every Fabrics controller.
const PageSize = 4096

// ErrShort is the cause of every parse error that comes from too few bytes.
var ErrShort = errors.New("too few bytes")

// shortError says which page was cut and how much of it came.
func shortError(page string, got, want int) error {
	return fmt.Errorf("nvme: %s: %w: got %d, want %d", page, ErrShort, got, want)
}

// appendPage appends the wire form of p, a pointer to a struct of fixed size whose layout is
// that of the page. Reserved fields are blank and become zero.
func appendPage(b []byte, p any) []byte {
	b, err := binary.Append(b, binary.LittleEndian, p)
	if err != nil {
		panic("nvme: page of no fixed size: " + err.Error()) // unreachable for the types of this package
	}
	return b
}

// parsePage is the inverse of appendPage. Bytes beyond the page are ignored.
func parsePage(b []byte, p any, size int, page string) error {
	if len(b) < size {
		return shortError(page, len(b), size)
	}
	_, err := binary.Decode(b[:size], binary.LittleEndian, p)
	return err
}
