package tcp

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestSuccessFlag: the flag replaces a response only if that would convey nothing else: neither a result nor SQHD nor
// another status.
func TestSuccessFlag(t *testing.T) {
	for name, alter := range map[string]func(m *response){
		"":                    func(*response) {},
		"SQ flow control":     func(m *response) { m.direct = false },
		"a status":            func(m *response) { m.CQE.SetStatus(nvme.StatusInvalidField) },
		"a result":            func(m *response) { m.CQE.SetResult(1) },
		"a result's upper DW": func(m *response) { m.CQE.SetResult(1 << 32) },
	} {
		m := &response{direct: true}
		alter(m)
		if got := m.success(); got != (name == "") {
			t.Errorf("%q: success %v", name, got)
		}
	}
}
