package target

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// rowConn is a transport that gathers.
type rowConn struct {
	Conn
	inRow        bool
	begun, ended int
}

func (c *rowConn) BeginRow() bool {
	if c.inRow {
		return false
	}
	c.inRow = true
	c.begun++
	return true
}

func (c *rowConn) EndRow() { c.inRow, c.ended = false, c.ended+1 }

// TestGather: a connection gathers once in each row of a volume's answers, and one that isn't a Gatherer isn't asked.
func TestGather(t *testing.T) {
	c := &rowConn{}
	q := &Queue{conn: c}
	var row blockdev.Row
	for i := 1; i <= 3; i++ {
		q.gather(&row)
		q.gather(&row)
		(&Queue{conn: &fakeConn{}}).gather(&row)
		if c.begun != i || c.ended != i-1 {
			t.Fatalf("row %d: begun %d, ended %d times", i, c.begun, c.ended)
		}
		if row.End(); c.ended != i {
			t.Fatalf("row %d: ended %d times", i, c.ended)
		}
	}
}
