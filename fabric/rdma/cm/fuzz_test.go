package cm

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// FuzzManager feeds a manager that listens with datagrams of two peers, one of which it has
// connections with. Nothing panics, connections stay within their limits, and when
// all is over nothing is left.
//
// The input is a list: a control byte, and a datagram's body cut to the length that the byte after
// it says. The control byte chooses the attribute, who sends, whether IDs that the manager knows are
// filled in, and how much time passes afterwards.
func FuzzManager(f *testing.F) {
	item := func(control byte, m Message) []byte {
		body := Append(nil, 0, m)[headerSize:]
		return append([]byte{control, 200}, body[:200]...)
	}
	f.Add(append(item(0x00, &REQ{LocalCommID: 9, LocalQPN: 5}), item(0x44, &RTU{})...))
	f.Add(append(item(0x43, &REP{LocalQPN: 9}), item(0x45, &DREQ{RemoteQPN: 9})...))
	f.Add(append(item(0x42, &REJ{Reason: verbs.RejectTimeout}), item(0xc1, &MRA{ServiceTimeout: 31})...))
	f.Add(append(item(0x20, &REQ{LocalCommID: 1, LocalQPN: 2}), item(0x20, &REQ{LocalCommID: 2, LocalQPN: 2})...))
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			cfg := Config{MaxConnections: 16, MaxHalfOpen: 8, MaxHalfOpenPerPeer: 4}
			nd := newNode(t, n, "127.0.0.1", cfg)
			l := nd.listen(4)
			l.handle = func(ev verbs.CMEvent) {
				if ev.Type == verbs.CMConnectRequest {
					l.createQP(ev.ID)
					_ = ev.ID.Accept(acceptParam) // the peer may be gone
				}
				drain(l)
			}
			known, stranger := newRawPeer(t, n, "127.0.0.8"), newRawPeer(t, n, "127.0.0.9")
			known.send(nd.addr, 1, known.req(nd.addr, 7, 8))
			synctest.Wait()
			local := localIDs(nd)
			for step := 0; len(data) >= 2 && step < 64; step++ {
				control, size := data[0], min(int(data[1]), len(data)-2, bodySize)
				mad := make([]byte, MADSize)
				_, m, err := Parse(Append(nil, uint64(step), kindOf(control)))
				if err != nil {
					t.Fatal(err)
				}
				Append(mad[:0], uint64(step), m)
				copy(mad[headerSize:], data[2:2+size])
				data = data[2+size:]
				if control&0x40 != 0 && len(local) > 0 {
					binary.BigEndian.PutUint32(mad[headerSize:], 7)
					binary.BigEndian.PutUint32(mad[headerSize+4:], local[step%len(local)])
				}
				src := known
				if control&0x20 != 0 {
					src = stranger
				}
				nd.m.arrived(src.addr, mad)
				if control&0x80 != 0 {
					time.Sleep(time.Second)
				}
				synctest.Wait()
				local = localIDs(nd)
				if c := nd.m.Counters(); c.HalfOpen.Load() > int64(cfg.MaxHalfOpen) || c.Connections.Load() > int64(cfg.MaxConnections) {
					t.Fatalf("%d half-open of %d connections", c.HalfOpen.Load(), c.Connections.Load())
				}
			}
			if err := nd.m.Close(); err != nil {
				t.Fatal(err)
			}
			nd.m.mu.Lock()
			defer nd.m.mu.Unlock()
			if len(nd.m.ids) != 0 || len(nd.m.table.byLocal) != 0 {
				t.Fatalf("%d identifiers, %d connections left", len(nd.m.ids), len(nd.m.table.byLocal))
			}
		})
	})
}

// kindOf is of the kind that control chooses.
func kindOf(control byte) Message {
	all := []Message{new(REQ), new(MRA), new(REJ), new(REP), new(RTU), new(DREQ), new(DREP), new(SIDRREQ), new(LAP), new(APR), new(SIDRREP)}
	return all[int(control&0x1f)%len(all)]
}

// localIDs are those that the node's manager gave.
func localIDs(nd *node) (ids []uint32) {
	nd.m.mu.Lock()
	defer nd.m.mu.Unlock()
	for id := range nd.m.table.byLocal {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// drain empties an end's events, which nobody waits for.
func drain(e *end) {
	for {
		select {
		case <-e.events:
		default:
			return
		}
	}
}
