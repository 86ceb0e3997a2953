package blockdev

import (
	"sync/atomic"
	"testing"

	"github.com/ncw/directio"
)

// gathering counts the answers of a row, on the goroutine that gives them.
type gathering struct{ gathered, rows int }

func (g *gathering) EndRow() { g.gathered, g.rows = 0, g.rows+1 }

// TestRow: a ring, the writer of the page cache and the goroutine that waits for asynchronous I/O answer in rows, each
// of which ends after its last answer and before the next begins.
func TestRow(t *testing.T) {
	t.Run("io_uring", func(t *testing.T) {
		testRow(t, openInternal(t, IOUring), OpRead)
		r := &Request{Op: OpRead, Length: 4096, Bufs: [][]byte{directio.AlignedBlock(8192)[1:4097]}, Row: new(Row)}
		if await(t, openInternal(t, IOUring), r); r.Row != nil {
			t.Error("a worker answers in a row")
		}
	})
	t.Run("asynchronous", func(t *testing.T) { testRow(t, openInternal(t, IODirect), OpRead) })
	t.Run("page cache", func(t *testing.T) { testRow(t, openInternal(t, IOBuffered), OpWrite) })
}

// testRow has a few requests resubmitted by their answers. A read that the kernel declines to do asynchronously, because
// the disk is busy, is answered by a worker, in no row: it doesn't count.
func testRow(t *testing.T, v *file, op Op) {
	const n, times, most = 8, 200, 100_000
	mem := directio.AlignedBlock(n * 4096)
	var g gathering
	var declined atomic.Int32
	left, end := n, make(chan error, n)
	for i := range n {
		r := &Request{Op: op, Offset: int64(i) * 4096, Length: 4096, Bufs: [][]byte{mem[i*4096:][:4096]}}
		k := 0
		r.Complete = func(*Request) {
			if r.Row == nil && op == OpRead && r.Err == nil && declined.Add(1) < most {
				v.Submit(r)
				return
			}
			if r.Row == nil {
				t.Errorf("answer %d of request %d is in no row", k, i)
				end <- r.Err
				return
			}
			if g.gathered == 0 {
				r.Row.AtEnd(&g)
			}
			g.gathered++
			if k++; k < times && r.Err == nil {
				v.Submit(r)
			} else if left--; left == 0 {
				end <- r.Err
			}
		}
		v.Submit(r)
	}
	if err := <-end; err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil { // which waits for the end of the last row
		t.Fatal(err)
	}
	if g.gathered != 0 || g.rows == 0 || g.rows > n*times {
		t.Errorf("%d rows of %d answers, the last of which left %d", g.rows, n*times, g.gathered)
	}
}
