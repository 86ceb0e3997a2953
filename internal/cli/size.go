package cli

import (
	"strconv"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Size is a flag in bytes, written like 4k, 64MiB or 1GiB (see blockdev.ParseSize).
type Size int64

func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	return blockdev.FormatSize(int64(*s))
}

// Set parses a size.
func (s *Size) Set(v string) error {
	n, err := blockdev.ParseSize(v)
	*s = Size(n)
	return err
}

// Type is the name of the value in help.
func (s *Size) Type() string { return "size" }

// UnmarshalText parses a size from a file.
func (s *Size) UnmarshalText(b []byte) error { return s.Set(string(b)) }

// UnmarshalYAML is UnmarshalText for the YAML library (see UnmarshalYAML).
func (s *Size) UnmarshalYAML(decode func(any) error) error { return UnmarshalYAML(s, decode) }

// MarshalText formats it so that UnmarshalText can parse it: with a unit if that is exact.
func (s Size) MarshalText() ([]byte, error) {
	text := blockdev.FormatSize(int64(s))
	if n, err := blockdev.ParseSize(text); err != nil || n != int64(s) {
		text = strconv.FormatInt(int64(s), 10)
	}
	return []byte(text), nil
}
