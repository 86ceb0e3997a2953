package rdma

import (
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestRejectError: a rejection says who refused and, if the user can do something about it, what.
func TestRejectError(t *testing.T) {
	for _, c := range []struct {
		err  RejectError
		want string
	}{
		{RejectError{Status: RejectInvalidLength}, "rejected by the NVMe target: "},
		{RejectError{Reason: verbs.RejectInvalidServiceID}, "nothing listens on this port"},
		{RejectError{Reason: verbs.RejectInvalidMTU}, "give both one MTU"},
		{RejectError{Reason: verbs.RejectInvalidGID}, "the peer's connection manager: "},
	} {
		if got := c.err.Error(); !strings.Contains(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
