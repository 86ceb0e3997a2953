package rc

import (
	"io"
	"strings"
	"testing"
)

// TestSides: which side a command line means, and where it waits or connects to.
func TestSides(t *testing.T) {
	for args, want := range map[string]string{
		"-bind 192.0.2.1":                     "192.0.2.1:7",
		"192.0.2.2":                           "192.0.2.2:7",
		"-port 65535 -bind 192.0.2.1 fd00::2": "[fd00::2]:65535",
		"":                                    "give -bind",
		"nowhere":                             "server",
		"192.0.2.2 192.0.2.3":                 "one server",
		"-port 0 192.0.2.2":                   "want 1 to 65535",
		"-port 65543 192.0.2.2":               "want 1 to 65535",
	} {
		var s Sides
		f := s.Flags("test", "", "TCP", 7, io.Discard)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := s.Parse(f.Args())
		got := s.Addr().String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
