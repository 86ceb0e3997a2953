package config

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestMarshalTexts: any text is read as it was written. A path with a tab was once written as that of a different file,
// which a target would have opened, or created, when it was started after "ctl save".
func TestMarshalTexts(t *testing.T) {
	const odd = "ab09 :#-?*&!%@`'\"|>{}[],\\/~<=.eXxo_+é\t\n\r\u0085\u00a0\u2028\x01\x7f😀"
	letters, random := []rune(odd), rand.New(rand.NewPCG(1, 2))
	texts := []string{"disk\t1.img", "? disk", "?", "a\nb", "\r", "<<", "null", "~", "0x1f", "1_000", "1e3", "2026-11-23", "yes", " a", "a ", "- a", "a: b", "a #b", "é",
		"---", "...", "--- a", "... a", ".inf", "-.INF", ".NaN"}
	for range 2000 {
		s := ""
		for range 1 + random.IntN(7) {
			s += string(letters[random.IntN(len(letters))])
		}
		texts = append(texts, s)
	}
	for _, s := range texts {
		c := &Config{Subsystems: []Subsystem{{NQN: nqn, Namespaces: []Namespace{{Volume: s}}}}, Authentication: &Authentication{Secrets: s}}
		b, err := c.Marshal()
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		again, err := Parse("f", b)
		if err != nil {
			t.Errorf("%q: %v in\n%s", s, err, b)
		} else if v := again.Subsystems[0].Namespaces[0].Volume; v != s || again.Authentication.Secrets != s {
			t.Errorf("%q is read as %q and %q", s, v, again.Authentication.Secrets)
		}
	}
}

// TestMarshalNotUTF8: a path that YAML can't represent is an error. It was once written as that of a different file,
// which a target started with it would have created.
func TestMarshalNotUTF8(t *testing.T) {
	c := &Config{Subsystems: []Subsystem{{NQN: nqn, Namespaces: []Namespace{{Volume: "caf\xe9.img"}}}}}
	if b, err := c.Marshal(); !errors.Is(err, errNotUTF8) {
		t.Errorf("%v, and\n%s", err, b)
	}
}
