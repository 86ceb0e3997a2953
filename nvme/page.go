package nvme

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
)

// PageSize is the size of an identify page, and of the memory page that is the unit of MDTS when
// CAP.MPSMIN is 0, as it is on every Fabrics controller.
const PageSize = 4096

// ErrShort is the cause of every parse error that is due to too few bytes.
var ErrShort = errors.New("too few bytes")

// ErrMalformed is the cause of every parse error that is due to the value of bytes rather than
// to their number.
var ErrMalformed = errors.New("malformed")

// shortError is the error for a page of which only got bytes of want are there.
func shortError(page string, got, want int) error {
	return fmt.Errorf("nvme: %s: %w: got %d, want %d", page, ErrShort, got, want)
}

// appendPage appends the wire form of p, a pointer to a struct of fixed size whose layout is
// that of the page: little-endian, without gaps. Reserved fields are blank and become zero.
func appendPage(b []byte, p any) []byte {
	from := len(b)
	b = append(b, make([]byte, binary.Size(p))...)
	codePage(b[from:], reflect.ValueOf(p).Elem(), false)
	return b
}

// parsePage is the inverse of appendPage. Bytes beyond the page are ignored.
func parsePage(b []byte, p any, size int, page string) error {
	if len(b) < size {
		return shortError(page, len(b), size)
	}
	codePage(b, reflect.ValueOf(p).Elem(), true)
	return nil
}

// codePage parses v from the beginning of b, or writes v to it, and returns the rest of b. It does what package
// encoding/binary does, but copies arrays of bytes, of which pages mostly consist, as a whole.
func codePage(b []byte, v reflect.Value, parse bool) []byte {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				b = codePage(b, f, parse)
			} else { // blank, and an array of bytes
				b = b[f.Len():]
			}
		}
		return b
	case reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				b = codePage(b, v.Index(i), parse)
			}
			return b
		}
		if all := v.Bytes(); parse {
			copy(all, b)
		} else {
			copy(b, all)
		}
		return b[v.Len():]
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		var word [8]byte
		size := int(v.Type().Size())
		if parse {
			copy(word[:], b[:size])
			v.SetUint(binary.LittleEndian.Uint64(word[:]))
		} else {
			binary.LittleEndian.PutUint64(word[:], v.Uint())
			copy(b[:size], word[:])
		}
		return b[size:]
	default:
		panic("nvme: page with a field of kind " + v.Kind().String()) // unreachable for the types of this package
	}
}
