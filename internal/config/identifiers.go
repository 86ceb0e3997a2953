package config

import (
	"cmp"
	"encoding"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// NGUID is a namespace's globally unique identifier, written as 32 hexadecimal digits.
type NGUID [16]byte

// EUI64 is a namespace's IEEE extended unique identifier, written as 16 hexadecimal digits.
type EUI64 [8]byte

// UUID is a namespace's universally unique identifier.
type UUID uuid.UUID

// UnmarshalText reads one.
func (u *UUID) UnmarshalText(b []byte) error {
	v, err := uuid.ParseBytes(b)
	if err != nil {
		return fmt.Errorf("%q: want one as 6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001", b)
	}
	*u = UUID(v)
	return nil
}

// MarshalText writes it as it is read.
func (u UUID) MarshalText() ([]byte, error) { return uuid.UUID(u).MarshalText() }

// UnmarshalText reads one; dashes, colons and dots between digits don't count.
func (n *NGUID) UnmarshalText(b []byte) error { return unmarshalHex(n[:], b) }

// MarshalText writes it as it is read.
func (n NGUID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(n[:])), nil }

// UnmarshalText reads one; dashes, colons and dots between digits don't count.
func (n *EUI64) UnmarshalText(b []byte) error { return unmarshalHex(n[:], b) }

// MarshalText writes it as it is read.
func (n EUI64) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(n[:])), nil }

func unmarshalHex(to, b []byte) error {
	v, err := hex.DecodeString(strings.NewReplacer("-", "", ":", "", ".", "").Replace(string(b)))
	if err != nil || len(v) != len(to) || strings.Trim(string(v), "\x00") == "" {
		return fmt.Errorf("want %d hexadecimal digits, not all 0", 2*len(to))
	}
	copy(to, v)
	return nil
}

// identifiers are those of namespaces that have been seen, and of what volume, and where. Hosts tell volumes apart by
// them, and refuse a second one: Linux across subsystems, too. The specification has one in several subsystems only where
// it is the same namespace in all (a dispersed one), which the target has none of; one in one subsystem that hosts reach
// by several endpoints is in the file once.
type identifiers map[any]string

// check adds those of a namespace that is at a place in the file.
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
	if n.UUID != nil && *n.UUID != (UUID{}) { // which stands for one that the target derives
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
