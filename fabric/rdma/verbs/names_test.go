package verbs

import "testing"

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Reset.String(), "RESET"},
		{Err.String(), "ERR"},
		{(Err + 1).String(), "state 5"},
		{CMAddrResolved.String(), "RDMA_CM_EVENT_ADDR_RESOLVED"},
		{CMTimewaitExit.String(), "RDMA_CM_EVENT_TIMEWAIT_EXIT"},
		{CMEventType(0).String(), "RDMA-CM event 0"},
		{(CMTimewaitExit + 1).String(), "RDMA-CM event 13"},
		{RejectInvalidServiceID.String(), "invalid service ID (reason 8)"},
		{RejectReason(24).String(), "reason 24"},
		{WCRemAccessErr.String(), "remote access error"},
		{(WCGeneralErr + 1).String(), "unknown status"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
