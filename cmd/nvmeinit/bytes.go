package main

import (
	"fmt"
	"io"
	"strings"
)

// bytesInLine is how many bytes printBytes shows per line.
const bytesInLine = 16

// printBytes shows bytes as nvme-cli does: lines of 16 in hexadecimal, with their offset and as text; or raw,
// unchanged.
func printBytes(w io.Writer, b []byte, raw bool) error {
	if raw {
		_, err := w.Write(b)
		return err
	}
	if len(b) == 0 {
		return nil
	}
	var s strings.Builder
	s.WriteString("     ")
	for i := range bytesInLine {
		fmt.Fprintf(&s, "%3x", i)
	}
	for at := 0; at < len(b); at += bytesInLine {
		line := b[at:min(at+bytesInLine, len(b))]
		fmt.Fprintf(&s, "\n%04x: %-*s \"%s\"", at, 3*bytesInLine-1, fmt.Sprintf("% x", line), legible(line))
	}
	s.WriteByte('\n')
	_, err := io.WriteString(w, s.String())
	return err
}

// legible returns the printable text in bytes, with dots for other bytes.
func legible(b []byte) string {
	text := make([]byte, len(b))
	for i, c := range b {
		text[i] = '.'
		if c >= ' ' && c <= '~' {
			text[i] = c
		}
	}
	return string(text)
}
