package config

import (
	"cmp"
	"encoding"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// NGUID is a namespace's globally unique identifier, written as 32 hexadecimal digits.
type NGUID [16]byte

// EUI64 is a namespace's IEEE extended unique identifier, written as 16 hexadecimal digits.
type EUI64 [8]byte

// UUID is a namespace's universally unique identifier.
type UUID uuid.UUID

// UnmarshalText parses a UUID.
func (u *UUID) UnmarshalText(b []byte) error {
	v, err := uuid.ParseBytes(b)
	if err != nil {
		return fmt.Errorf("%q: want one as 6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001", b)
	}
	*u = UUID(v)
	return nil
}

// UnmarshalYAML is UnmarshalText for the YAML library (see cli.UnmarshalYAML).
func (u *UUID) UnmarshalYAML(decode func(any) error) error { return cli.UnmarshalYAML(u, decode) }

// MarshalText formats u so that UnmarshalText can parse it.
func (u UUID) MarshalText() ([]byte, error) { return uuid.UUID(u).MarshalText() }

// UnmarshalText parses an NGUID; dashes, colons and dots between digits are ignored.
func (n *NGUID) UnmarshalText(b []byte) error { return unmarshalHex(n[:], b) }

// UnmarshalYAML is UnmarshalText for the YAML library (see cli.UnmarshalYAML).
func (n *NGUID) UnmarshalYAML(decode func(any) error) error { return cli.UnmarshalYAML(n, decode) }

// MarshalText formats n so that UnmarshalText can parse it.
func (n NGUID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(n[:])), nil }

// UnmarshalText parses an EUI-64; dashes, colons and dots between digits are ignored.
func (n *EUI64) UnmarshalText(b []byte) error { return unmarshalHex(n[:], b) }

// UnmarshalYAML is UnmarshalText for the YAML library (see cli.UnmarshalYAML).
func (n *EUI64) UnmarshalYAML(decode func(any) error) error { return cli.UnmarshalYAML(n, decode) }

// MarshalText formats n so that UnmarshalText can parse it.
func (n EUI64) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(n[:])), nil }

func unmarshalHex(to, b []byte) error {
	v, err := hex.DecodeString(strings.NewReplacer("-", "", ":", "", ".", "").Replace(string(b)))
	if err != nil || len(v) != len(to) || strings.Trim(string(v), "\x00") == "" {
		return fmt.Errorf("%q: want %d hexadecimal digits, not all 0", b, 2*len(to))
	}
	copy(to, v)
	return nil
}

// identifiers maps the identifiers of namespaces seen so far to where they are and of which volume. Hosts tell volumes
// apart by them, and refuse a duplicate; Linux does so across subsystems, too. The specification allows the same
// identifier in several subsystems only if it is the same namespace in all of them (a dispersed namespace), which the
// target doesn't support. A namespace of one subsystem that hosts reach by several endpoints is in the file only once.
type identifiers map[any]string

// check adds the identifiers of a namespace; at is its place in the file.
func (ids identifiers) check(at string, n *Namespace) *FieldError {
	add := func(name string, id encoding.TextMarshaler) *FieldError {
		if other, twice := ids[id]; twice {
			text, _ := id.MarshalText()
			return field(at+name, string(text), "%s has it too, and hosts tell volumes apart by it: give %s another, or none",
				other, n.Volume)
		}
		ids[id] = fmt.Sprintf("%s%s (of %s)", at, name, n.Volume)
		return nil
	}
	var err *FieldError
	if n.UUID != nil && *n.UUID != (UUID{}) { // the zero UUID stands for one that the target derives
		err = add("uuid", *n.UUID)
	}
	if n.NGUID != nil {
		err = cmp.Or(err, add("nguid", *n.NGUID))
	}
	if n.EUI64 != nil {
		err = cmp.Or(err, add("eui64", *n.EUI64))
	}
	return err
}
