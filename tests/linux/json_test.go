package linux

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// testJSON: nvmeinit prints the same as nvme-cli about the same target, member by member.
func testJSON(t *testing.T, p *peer, ctrl, dev string) {
	to := []string{"-t", "tcp", "-a", hostAddr, "-s", "4420"}
	for verb, c := range map[string]struct {
		args   []string // of nvmeinit, in addition to the argument to
		theirs string
		except []string // members that only nvme-cli has, or that differ from one connection to the next
	}{
		"id-ctrl":   {[]string{"-n", testNQN}, "nvme id-ctrl " + ctrl, []string{"cntlid", "flags"}},
		"id-ns":     {[]string{"-n", testNQN}, "nvme id-ns " + dev, []string{"vs"}},
		"smart-log": {[]string{"-n", testNQN}, "nvme smart-log " + ctrl, []string{"host_read_commands", "data_units_read"}},
		"ana-log":   {[]string{"-n", testNQN}, "nvme ana-log " + ctrl, []string{"Asymmetric Namespace Access Log for NVMe device"}},
		"discover":  {nil, fmt.Sprintf("nvme discover -t tcp -a %s -s 4420", hostAddr), nil},
	} {
		out, stderr, code := nvmeinit(t, append(append([]string{verb, "-o", "json"}, to...), c.args...)...)
		if code != 0 {
			t.Errorf("%s: exit code %d: %s", verb, code, stderr)
			continue
		}
		var ours, theirs any
		for _, x := range []struct {
			text string
			v    *any
		}{{out, &ours}, {p.must(t, c.theirs+" -o json"), &theirs}} {
			d := json.NewDecoder(strings.NewReader(x.text))
			d.UseNumber()
			if err := d.Decode(x.v); err != nil {
				t.Errorf("%s: %v in %s", verb, err, x.text)
			}
		}
		compareJSON(t, verb, ours, theirs, c.except)
	}
}

// compareJSON reports members of theirs that ours lacks, or has with another value, with some exceptions.
func compareJSON(t *testing.T, at string, ours, theirs any, except []string) {
	t.Helper()
	switch theirs := theirs.(type) {
	case map[string]any:
		have, _ := ours.(map[string]any)
		for name, v := range theirs {
			ours, ok := have[name]
			switch {
			case slices.Contains(except, name):
			case !ok:
				t.Errorf("%s: no %s, which nvme-cli has as %v", at, name, v)
			default:
				compareJSON(t, at+" "+name, ours, v, except)
			}
		}
	case []any:
		have, _ := ours.([]any)
		if len(have) != len(theirs) {
			t.Errorf("%s: %d elements, nvme-cli has %d", at, len(have), len(theirs))
			return
		}
		for i := range theirs {
			compareJSON(t, fmt.Sprint(at, " ", i), have[i], theirs[i], except)
		}
	default:
		// nvme-cli 2.3 keeps the padding of texts, and prints numbers of 128 bits as texts.
		if want := strings.TrimRight(fmt.Sprint(theirs), " "); fmt.Sprint(ours) != want {
			t.Errorf("%s: %v, nvme-cli has %v", at, ours, theirs)
		}
	}
}
