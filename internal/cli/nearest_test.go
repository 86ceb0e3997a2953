package cli

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"rw", "bs", "iodepth", "rwmixread", "rwmixwrite", "size"}
	for name, want := range map[string]string{
		"iodpeth": "iodepth", "rw_mixread": "rwmixread", "siez": "", "sizes": "size", "iodepthxyz": "", "": "", "x": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
}
