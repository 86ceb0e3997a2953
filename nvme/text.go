package nvme

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// PutPadded copies s into dst and fills the rest with spaces, the form of ASCII strings: serial number, model number,
// firmware revision, and the transport address fields (NVMe base, "Numerical Descriptions"). If s doesn't fit it is cut;
// bytes outside 20h to 7Eh, which the specification forbids, become '?'.
func PutPadded(dst []byte, s string) {
	n := copy(dst, s)
	for i, c := range dst[:n] {
		if c < 0x20 || c > 0x7e {
			dst[i] = '?'
		}
	}
	for i := n; i < len(dst); i++ {
		dst[i] = ' '
	}
}

// Text returns the string in a fixed field, whether padded with spaces or ended by NUL, as Shown.
func Text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.TrimRight(Shown(string(b)), " ")
}

// Shown returns text of others as it may be shown on a terminal. What has no shape, such as control characters and those
// that reorder or hide others, and invalid UTF-8 become '?': they would control the terminal, or have the text be mistaken
// for another.
func Shown(s string) string {
	return strings.Map(func(r rune) rune {
		if shapeless(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

func shapeless(r rune) bool { return !unicode.IsGraphic(r) }

// PutText copies s into dst and fills the rest with NUL, the form of NQNs. It fails if s and one NUL don't fit.
func PutText(dst []byte, s string) error {
	if len(s) >= len(dst) {
		return fmt.Errorf("nvme: %q is %d bytes long: the field holds %d", s, len(s), len(dst)-1)
	}
	clear(dst[copy(dst, s):])
	return nil
}

// CheckPadded returns an error if s can't be stored in a field of n ASCII bytes (a serial or model number).
func CheckPadded(field, s string, n int) error {
	if len(s) > n {
		return fmt.Errorf("nvme: %s %q is %d bytes long: shorten it to %d", field, s, len(s), n)
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return fmt.Errorf("nvme: %s %q: byte %d is not printable ASCII", field, s, i)
		}
	}
	return nil
}

func hexadecimal(v uint64) string { return fmt.Sprintf("%#x", v) }
