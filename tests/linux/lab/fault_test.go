package lab

import "testing"

func TestEmulatorFault(t *testing.T) {
	for dump, want := range map[string]bool{
		"RSP: 0018:ffffc9000593fc40 EFLAGS: 3b4ac202\n":           true,
		"RSP: 0018:ffffc9000593fc40 EFLAGS: 00010246\n":           false,
		"RSP: 0018:ffffc9000593fc40 EFLAGS: 00210286":             false,
		"[  126.4] traps: PANIC: double fault, error_code: 0x0\n": true,
		"all is well\n": false,
	} {
		if got := emulatorFault([]byte(dump)); got != want {
			t.Errorf("%q: %v", dump, got)
		}
	}
}
