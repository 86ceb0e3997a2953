package cm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// pair runs f in virtual time with an initiator, a target and a listener of the latter that
// accepts, and checks that Close ends every goroutine and QP.
func pair(t *testing.T, f func(t *testing.T, n *network, host, target *node, l *end)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		host := newNode(t, n, "127.0.0.2", Config{})
		target := newNode(t, n, "127.0.0.1", Config{})
		f(t, n, host, target, target.listen(0))
		host.m.Close()
		target.m.Close()
		if h, g := host.dev.liveQPs(), target.dev.liveQPs(); h+g != 0 {
			t.Errorf("QPs left: %d %d", h, g)
		}
		host.wantEmpty()
		target.wantEmpty()
		time.Sleep(time.Minute) // delayed MADs
	})
}

// established waits until both sides know that they are connected.
func established(h, l *end) {
	h.want(verbs.CMEstablished)
	l.id = l.want(verbs.CMConnectRequest).ID
	l.want(verbs.CMEstablished)
}

// ended waits until both sides know that the connection has ended, which h begins.
func ended(h, l *end) {
	if err := h.id.Disconnect(); err != nil {
		h.t.Error(err)
	}
	l.want(verbs.CMDisconnected)
	if err := l.id.Disconnect(); err != nil {
		h.t.Error(err)
	}
	h.want(verbs.CMDisconnected)
	h.want(verbs.CMTimewaitExit)
	l.want(verbs.CMTimewaitExit)
}

// checkQPs compares the attributes of both QPs with the messages and with each other.
func checkQPs(t *testing.T, n *network, h, l *end) {
	t.Helper()
	req := n.sent(h.addr, mad.AttrREQ)[0].msg.(*mad.REQ)
	rep := n.sent(l.addr, mad.AttrREP)[0].msg.(*mad.REP)
	a, b := h.qp().Query(), l.qp().Query()
	if a.State != verbs.RTS || b.State != verbs.RTS {
		t.Errorf("states %v %v", a.State, b.State)
	}
	if a.DestQPN != l.qp().num || b.DestQPN != h.qp().num || a.Remote != l.addr || b.Remote != h.addr {
		t.Errorf("peers %+v\n%+v", a, b)
	}
	// The starting PSN of a message is for its receiver.
	if a.SQPSN != b.RQPSN || a.RQPSN != b.SQPSN || b.SQPSN != req.StartingPSN || a.SQPSN != rep.StartingPSN {
		t.Errorf("PSNs %x %x, %x %x", a.SQPSN, a.RQPSN, b.SQPSN, b.RQPSN)
	}
	if a.PathMTU != verbs.MTU4096 || b.PathMTU != verbs.MTU4096 {
		t.Errorf("MTUs %v %v", a.PathMTU, b.PathMTU)
	}
	if a.MaxDestRdAtomic != 64 || b.MaxRdAtomic != 64 || a.MaxRdAtomic != 0 || b.MaxDestRdAtomic != 0 {
		t.Errorf("READs %d %d, %d %d", a.MaxDestRdAtomic, a.MaxRdAtomic, b.MaxDestRdAtomic, b.MaxRdAtomic)
	}
	if a.Timeout != 17 || b.Timeout != 17 || a.RetryCnt != 7 || b.RetryCnt != 7 || a.RNRRetry != 6 || b.RNRRetry != 7 {
		t.Errorf("retries %+v\n%+v", a, b)
	}
	if a.MinRNRTimer != minRNRTimer || b.MinRNRTimer != minRNRTimer {
		t.Errorf("RNR timers %d %d", a.MinRNRTimer, b.MinRNRTimer)
	}
	if h.qp().access != verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic ||
		l.qp().access != verbs.AccessRemoteWrite {
		t.Errorf("access %b %b", h.qp().access, l.qp().access)
	}
}
