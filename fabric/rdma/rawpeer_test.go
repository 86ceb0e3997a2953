package rdma_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// rawPeer is the other end of a connection, operated by hand: a queue pair with memory, whose beginning and end are
// not registered and stay zero. It may have one connection after another. Its methods don't call t.Helper, which would
// take an eighth of the time.
type rawPeer struct {
	t     *testing.T
	id    verbs.CMID
	pd    verbs.PD
	cq    verbs.CQ
	qp    verbs.QP
	mr    verbs.MR
	buf   []byte
	recv  func(index, n int) // a message of n bytes is in receive buffer index; may be nil
	mu    sync.Mutex         // handlers of the two ends run at once
	recvs [rawRecvs]verbs.RecvWR

	events chan verbs.CMEvent // dialTarget's
}

const (
	rawGuard    = 64
	rawRecvs    = 48
	rawRecvSize = 4608
	rawData     = 64 << 10 // behind the receive buffers
)

func (p *rawPeer) open(dev verbs.Device) {
	must := func(err error) {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	var err error
	if p.pd == nil {
		p.pd, err = dev.AllocPD()
		must(err)
		p.buf = make([]byte, rawGuard+rawRecvs*rawRecvSize+rawData+rawGuard)
		p.mr, err = p.pd.RegMR(p.buf[rawGuard:len(p.buf)-rawGuard],
			verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
		must(err)
		p.cq, err = dev.CreateCQ(4*rawRecvs, p.completed)
		must(err)
		for i := range p.recvs {
			p.recvs[i] = verbs.RecvWR{WRID: uint64(i), SGList: p.sge(i*rawRecvSize, rawRecvSize)}
		}
	}
	p.cq.ReqNotify()
	p.qp, err = p.id.CreateQP(p.pd, verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: p.cq, RecvCQ: p.cq,
		MaxSendWR: rawRecvs, MaxRecvWR: rawRecvs, MaxSendSGE: 1, MaxRecvSGE: 1,
	})
	must(err)
	_, err = p.qp.PostRecv(p.recvs[:])
	must(err)
}

func (p *rawPeer) postRecv(index int) error {
	_, err := p.qp.PostRecv(p.recvs[index : index+1])
	return err
}

func (p *rawPeer) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: p.mr.Addr() + uint64(off), Length: uint32(n), LKey: p.mr.LKey()}}
}

// area is the memory at an offset of the registered range.
func (p *rawPeer) area(off, n int) []byte { return p.buf[rawGuard+off:][:n] }

func (p *rawPeer) completed(cq verbs.CQ) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var wcs [8]verbs.WC
	for {
		n := cq.Poll(wcs[:])
		if n == 0 && !cq.ReqNotify() {
			return
		}
		for _, wc := range wcs[:n] {
			switch {
			case wc.Opcode != verbs.WCRecv || wc.Status != verbs.WCSuccess:
			case p.recv != nil:
				p.recv(int(wc.WRID), int(wc.ByteLen))
			default:
				_ = p.postRecv(int(wc.WRID)) // the connection may have ended
			}
		}
	}
}

// ended reports whether the connection has ended.
func (p *rawPeer) ended() bool { return len(p.events) > 0 || p.qp.Query().State != verbs.RTS }

// post sends, unless the connection has ended.
func (p *rawPeer) post(wr verbs.SendWR) { _, _ = p.qp.PostSend([]verbs.SendWR{wr}) }

func (p *rawPeer) close() {
	_ = p.id.Disconnect()
	_ = p.id.Destroy()
	p.check()
}

func (p *rawPeer) check() {
	for i := range rawGuard {
		if p.buf[i] != 0 || p.buf[len(p.buf)-1-i] != 0 {
			p.t.Fatal("written outside of registered memory")
		}
	}
}

// dialTarget connects p to the target with an NVMe/RDMA request for a queue of a controller, or of any controller if
// cntlid is 0.
func (p *rawPeer) dialTarget(nic *simNIC, qid byte, cntlid uint16) {
	if ev := p.request(nic, []byte{0, 0, qid, 0, 32, 0, 31, 0, byte(cntlid), byte(cntlid >> 8), 31: 0}); ev.Type != verbs.CMEstablished {
		p.t.Fatalf("%v instead of a connection: %v", ev.Type, ev.Err)
	}
}

// request asks the target for a connection, with private data, and returns the resulting event.
func (p *rawPeer) request(nic *simNIC, private []byte) verbs.CMEvent {
	p.events = make(chan verbs.CMEvent, 16)
	must := func(err error) {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	step := func(err error, want verbs.CMEventType) {
		must(err)
		if ev := <-p.events; ev.Type != want {
			p.t.Fatalf("%v instead of %v: %v", ev.Type, want, ev.Err)
		}
	}
	var err error
	p.id, err = nic.CreateID(func(ev verbs.CMEvent) { p.events <- ev })
	must(err)
	step(p.id.ResolveAddr(netip.Addr{}, simNVMe, time.Second), verbs.CMAddrResolved)
	step(p.id.ResolveRoute(time.Second), verbs.CMRouteResolved)
	p.open(nic.dev)
	must(p.id.Connect(verbs.ConnParam{PrivateData: private, ResponderResources: 16, RetryCount: 7, RNRRetryCount: 7}))
	return <-p.events
}
