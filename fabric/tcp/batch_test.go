package tcp

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// messagesOf returns how to make one message of each kind, for a connection that has agreed on f.
func messagesOf(f pdu.Format) []func() message {
	data := randomBytes(1, 3000)
	answer := func(cuts ...int) func() message {
		return func() message {
			r := &request{conn: &targetConn{format: f, l: &Listener{}}, direct: len(cuts) == 1}
			at := 0
			for _, end := range cuts {
				r.Data = append(r.Data, blockdev.Segment{Bytes: data[at:end]})
				at = end
			}
			r.SendData = len(r.Data) > 0
			return (*response)(r)
		}
	}
	slot := func(op nvme.Opcode, n, inlineLimit int) *hostSlot {
		r := &host.Request{Data: data[:n]}
		r.Cmd.SetIO(op, 1, 0, 1, 0)
		s := &hostSlot{q: &hostQueue{format: f, maxH2CData: 512}}
		s.prepare(r, inlineLimit)
		return s
	}
	return []func() message{
		answer(), answer(512), answer(512, 1024), answer(8, 500, 1000, 1004, 3000),
		func() message {
			return (*readyToTransfer)(&request{conn: &targetConn{format: f}, total: 512})
		},
		func() message { return (*command)(slot(nvme.OpRead, 512, 0)) },
		func() message { return (*inlineCommand)(slot(nvme.OpWrite, 1024, 8192)) },
		func() message {
			s := slot(nvme.OpWrite, 2000, 0)
			s.transfer.end = 2000
			return (*hostData)(s)
		},
		func() message { return newPlain(pdu.ICResp{}.Append(nil)) },
	}
}

// stream is what a writer would send: the content of one batch after the other.
type stream struct {
	b    batch
	sent bytes.Buffer
}

func newStream() *stream { return &stream{b: batch{stage: make([]byte, 0, stageSize)}} }

func (s *stream) add(t *testing.T, m message) {
	t.Helper()
	for !m.encode(&s.b) {
		if s.b.empty() {
			t.Fatal("a PDU doesn't fit into an empty batch")
		}
		s.flush()
	}
}

func (s *stream) flush() {
	for _, v := range s.b.iov[:s.b.n] {
		s.sent.Write(unsafe.Slice(v.Base, v.Len))
	}
	s.b.reset()
}

// TestHeadersAreOnePiece: headers and digests next to each other are one piece for the kernel, whatever they belong to.
func TestHeadersAreOnePiece(t *testing.T) {
	f := pdu.Format{Digests: pdu.DigestHeader | pdu.DigestData}
	s := newStream()
	s.b.commit(append(s.b.stage, 1))
	s.b.commit(append(s.b.stage, 2))
	s.b.gatherWhole(make([]byte, 512), f)
	s.b.commit(append(s.b.stage, 3))
	if s.b.n != 3 || s.b.length() != 2+512+pdu.DigestSize+1 {
		t.Errorf("%d pieces of %d bytes, want 3 of %d", s.b.n, s.b.length(), 2+512+pdu.DigestSize+1)
	}
}

// TestBatches: what is sent doesn't depend on which messages share a send call, nor on where one is full, in the middle
// of a message perhaps.
func TestBatches(t *testing.T) {
	for _, digests := range []pdu.Digests{0, pdu.DigestHeader | pdu.DigestData} {
		for _, pda := range []uint8{0, 31} {
			f := pdu.Format{Digests: digests, PDA: pda}
			kinds := messagesOf(f)
			for first := range kinds {
				t.Run(fmt.Sprintf("digests=%v,PDA=%d,first=%d", digests, pda, first), func(t *testing.T) {
					alone, together := newStream(), newStream()
					const many = stageSize / pdu.R2TSize // even of the smallest PDUs these don't fit
					for k := range many + 4*len(kinds) {
						kind := kinds[first] // some of one kind fill a batch, and then come the others
						if k >= many {
							kind = kinds[(first+k)%len(kinds)]
						}
						alone.add(t, kind())
						alone.flush()
						together.add(t, kind())
					}
					together.flush()
					if !bytes.Equal(together.sent.Bytes(), alone.sent.Bytes()) {
						t.Error("other bytes are sent together than alone")
					}
				})
			}
		}
	}
}
