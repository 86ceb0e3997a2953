package tcp

import (
	"net"
	"testing"
)

// rowMessage is a message of four bytes.
type rowMessage struct{ wrote bool }

func (*rowMessage) encode(b *batch) bool {
	b.commit(append(b.stage, "four"...))
	return true
}

func (m *rowMessage) written() { m.wrote = true }

// TestRowIsOneSend: messages posted during a row of answers are sent at its end, or at once if the
// connection ends during the row.
func TestRowIsOneSend(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := newWriter(socketOf(t, c), &DirectionCounters{})
	if !w.beginRow() || w.beginRow() {
		t.Fatal("not exactly one row")
	}
	var m [4]rowMessage
	w.post(&m[0], 0)
	w.post(&m[1], 0)
	if m[0].wrote || m[1].wrote {
		t.Error("sent before the end of the row")
	}
	w.endRow()
	if !m[0].wrote || !m[1].wrote {
		t.Error("not sent at the end of the row")
	}
	w.beginRow()
	w.post(&m[2], 0)
	w.seal(&m[3])
	if !m[2].wrote || !m[3].wrote || w.beginRow() {
		t.Error("a row goes on after the last message")
	}
	w.endRow()
}
