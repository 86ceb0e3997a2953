package cm

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// FuzzManager feeds a listening manager with datagrams of two peers, with one of which it has connections. Nothing
// panics, connections stay within their limits, and when all is over nothing is left.
//
// The input is a list: a control byte, and a datagram's body cut to the length that the next byte specifies. The
// control byte chooses the attribute, the sender, whether IDs that the manager knows are filled in, and how much time
// passes afterwards.
func FuzzManager(tf *testing.F) {
	f := fuzzing.New(tf)
	item := func(control byte, m mad.Message) []byte {
		body := mad.Append(nil, 0, m)[mad.HeaderSize:]
		return append([]byte{control, 200}, body[:200]...)
	}
	f.Add(uint8(0), append(item(0x00, &mad.REQ{LocalCommID: 9, LocalQPN: 5}), item(0x44, &mad.RTU{})...))
	f.Add(uint8(0), append(item(0x43, &mad.REP{LocalQPN: 9}), item(0x45, &mad.DREQ{RemoteQPN: 9})...))
	f.Add(uint8(0), append(item(0x42, &mad.REJ{Reason: verbs.RejectTimeout}), item(0xc1, &mad.MRA{ServiceTimeout: 31})...))
	f.Add(uint8(0), append(item(0x20, &mad.REQ{LocalCommID: 1, LocalQPN: 2}), item(0x20, &mad.REQ{LocalCommID: 2, LocalQPN: 2})...))
	f.Worlds(func(t *testing.T, _ uint8, inputs iter.Seq[[]byte]) {
		synctest.Test(t, func(t *testing.T) {
			w := newFuzzWorld(t)
			for data := range inputs {
				w.feed(data)
			}
			w.close()
		})
	})
}

// fuzzConfig has limits that inputs can reach.
var fuzzConfig = Config{MaxConnections: 16, MaxHalfOpen: 8, MaxHalfOpenPerPeer: 4}

// fuzzWorld is a node that accepts every request, and destroys connections that have ended.
type fuzzWorld struct {
	*node
	known, stranger *rawPeer
	mad             []byte

	mu   sync.Mutex
	gone []verbs.CMID
}

func newFuzzWorld(t *testing.T) *fuzzWorld {
	n := newNetwork()
	w := &fuzzWorld{node: newNode(t, n, "127.0.0.1", fuzzConfig), mad: make([]byte, mad.Size)}
	w.known, w.stranger = newRawPeer(t, n, "127.0.0.8"), newRawPeer(t, n, "127.0.0.9")
	n.unrecorded = true
	for _, p := range []*rawPeer{w.known, w.stranger} {
		n.ports[p.addr] = func(netip.Addr, []byte) {} // nobody looks at what they receive
	}
	listener := w.newEnd()
	if err := listener.id.Listen(netip.AddrPortFrom(netip.Addr{}, 4420), 4); err != nil {
		t.Fatal(err)
	}
	listener.handle = func(ev verbs.CMEvent) {
		switch ev.Type {
		case verbs.CMConnectRequest:
			listener.createQP(ev.ID)
			_ = ev.ID.Accept(acceptParam) // the peer may be gone
		case verbs.CMDisconnected, verbs.CMUnreachable, verbs.CMRejected, verbs.CMConnectError:
			w.mu.Lock()
			w.gone = append(w.gone, ev.ID)
			w.mu.Unlock()
		}
		drain(listener)
	}
	return w
}

// feed sends what data says; the known peer has a connection at the start.
func (w *fuzzWorld) feed(data []byte) {
	if len(localIDs(w.node)) == 0 {
		w.known.send(w.addr, 1, w.known.req(w.addr, 7, 8))
		w.settle()
	}
	for step := 0; len(data) >= 2 && step < 64; step++ {
		control, size := data[0], min(int(data[1]), len(data)-2, mad.Size-mad.HeaderSize)
		mad.Append(w.mad[:0], uint64(step), kindOf(control))
		copy(w.mad[mad.HeaderSize:], data[2:2+size])
		data = data[2+size:]
		if control&0x40 != 0 {
			if local := localIDs(w.node); len(local) > 0 {
				binary.BigEndian.PutUint32(w.mad[mad.HeaderSize:], 7)
				binary.BigEndian.PutUint32(w.mad[mad.HeaderSize+4:], local[step%len(local)])
			}
		}
		src := w.known
		if control&0x20 != 0 {
			src = w.stranger
		}
		w.m.arrived(src.addr, w.mad)
		if control&0x80 != 0 {
			time.Sleep(time.Second)
		}
		w.settle()
	}
}

// settle lets the node do all its work, and checks its limits.
func (w *fuzzWorld) settle() {
	synctest.Wait()
	w.mu.Lock()
	gone := w.gone
	w.gone = nil
	w.mu.Unlock()
	for _, id := range gone {
		_ = id.Destroy() // its end may have been reported more than once
	}
	if c := w.m.Counters(); c.HalfOpen.Load() > int64(fuzzConfig.MaxHalfOpen) || c.Connections.Load() > int64(fuzzConfig.MaxConnections) {
		w.t.Fatalf("%d half-open of %d connections", c.HalfOpen.Load(), c.Connections.Load())
	}
	if n := w.dev.liveQPs(); n > fuzzConfig.MaxConnections {
		w.t.Fatalf("%d queue pairs", n)
	}
}

func (w *fuzzWorld) close() {
	if err := w.m.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if n := w.dev.liveQPs(); len(w.m.ids) != 0 || len(w.m.table.byLocal) != 0 || n != 0 {
		w.t.Fatalf("%d identifiers, %d connections, %d queue pairs left", len(w.m.ids), len(w.m.table.byLocal), n)
	}
}

// forget drops what has been sent and what the peers have received.
func (n *network) forget(peers ...*rawPeer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = n.log[:0]
	for _, p := range peers {
		for len(p.in) > 0 {
			<-p.in
		}
	}
}

// kindOf returns an empty message of the kind that control chooses.
func kindOf(control byte) mad.Message {
	return fuzzKinds[int(control&0x1f)%len(fuzzKinds)]
}

// fuzzKinds are empty messages: their bodies are filled in later.
var fuzzKinds = []mad.Message{
	new(mad.REQ), new(mad.MRA), new(mad.REJ), new(mad.REP), new(mad.RTU), new(mad.DREQ), new(mad.DREP),
	new(mad.SIDRREQ), new(mad.LAP), new(mad.APR), new(mad.SIDRREP),
}

// localIDs returns the IDs that the node's manager assigned.
func localIDs(nd *node) (ids []uint32) {
	nd.m.mu.Lock()
	defer nd.m.mu.Unlock()
	for id := range nd.m.table.byLocal {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// drain discards an end's events, which nobody waits for.
func drain(e *end) {
	for {
		select {
		case <-e.events:
		default:
			return
		}
	}
}
