package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestPrintBytes: bytes are shown as nvme-cli shows them, or unchanged.
func TestPrintBytes(t *testing.T) {
	in := []byte("NVMe\x00 ~ver \x7fFabrics\n")
	var b bytes.Buffer
	if err := printBytes(&b, in, false); err != nil {
		t.Fatal(err)
	}
	want := `       0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f
0000: 4e 56 4d 65 00 20 7e 76 65 72 20 7f 46 61 62 72 "NVMe. ~ver .Fabr"
0010: 69 63 73 0a                                     "ics."
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := printBytes(&b, in[:bytesInLine], false); err != nil || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("one whole line: %v, %s", err, b.String())
	}
	b.Reset()
	if err := printBytes(&b, in, true); err != nil || !bytes.Equal(b.Bytes(), in) {
		t.Errorf("raw: %v, %q", err, b.Bytes())
	}
}
