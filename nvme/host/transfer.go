package host

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// transferDepth is how many commands of one transfer are outstanding at once.
const transferDepth = 8

// transfer is the state of one ReadAt, WriteAt or Compare. It is reused, so that a transfer allocates nothing.
type transfer struct {
	parts [transferDepth]part
	idle  []*part
	ended chan *part // has room for all parts, so that Done never blocks
	grace *grace     // set once the transfer was cancelled
}

// part is one command of a transfer.
type part struct {
	req   Request
	busy  bool // submitted, and not yet received from ended
	start int  // offset in the caller's slice
}

// newTransfer makes the elements of Controller.transfers.
func newTransfer() any {
	t := &transfer{ended: make(chan *part, transferDepth)}
	for i := range t.parts {
		p := &t.parts[i]
		p.req.Done = func(*Request) { t.ended <- p }
	}
	return t
}

// transfer transfers p to or from off by commands of opcode op.
func (n *Namespace) transfer(ctx context.Context, op nvme.Opcode, p []byte, off int64, ctl nvme.IOControl) (int, error) {
	if err := n.check(off, int64(len(p))); err != nil {
		return 0, err
	}
	t := n.ctrl.transfers.Get().(*transfer)
	defer n.ctrl.transfers.Put(t)
	defer t.end()
	t.idle = t.idle[:0]
	for i := range t.parts {
		t.idle = append(t.idle, &t.parts[i])
	}
	good, sent, busy := len(p), 0, 0
	var failure error
	fail := func(at int, err error) {
		if failure == nil || at < good {
			good, failure = at, err
		}
	}
	for sent < len(p) && failure == nil || busy > 0 {
		for failure == nil && sent < len(p) && len(t.idle) > 0 {
			if err := ctx.Err(); err != nil {
				fail(sent, fmt.Errorf("nvme: %s on namespace %d: %w", op.IOName(), n.ID, err))
				break
			}
			size := min(len(p)-sent, n.MaxTransfer())
			t.begin(n, op, p[sent:sent+size], sent, off+int64(sent), ctl)
			sent, busy = sent+size, busy+1
		}
		if busy == 0 {
			break
		}
		d, err := t.wait(ctx, n.carrier)
		busy--
		if err != nil {
			fail(d.start, err)
		}
	}
	return good, failure
}

// begin submits one command.
func (t *transfer) begin(n *Namespace, op nvme.Opcode, data []byte, start int, off int64, ctl nvme.IOControl) {
	d := t.idle[len(t.idle)-1]
	t.idle = t.idle[:len(t.idle)-1]
	d.busy, d.start = true, start
	d.req.Data = data
	d.req.Cmd.SetIO(op, n.ID, uint64(off)/uint64(n.blockSize), uint32(len(data)/n.blockSize), ctl)
	n.carrier.SubmitOne(&d.req)
}

// wait returns the next part that ended, and its error. If ctx ends first, it cancels the transfer as Do cancels a
// request.
func (t *transfer) wait(ctx context.Context, c Carrier) (*part, error) {
	var d *part
	if t.grace == nil {
		select {
		case d = <-t.ended:
		case <-ctx.Done():
			t.cancel(c)
		}
	}
	if d == nil {
		d = <-t.ended
	}
	d.busy, d.req.Data = false, nil
	t.idle = append(t.idle, d)
	err := d.req.Check()
	if err != nil && t.grace != nil {
		err = fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return d, err
}

// cancel aborts every outstanding command.
func (t *transfer) cancel(c Carrier) {
	t.grace = startGrace(func() {
		for i := range t.parts {
			c.Cancel(&t.parts[i].req, true) // one that has ended isn't found
		}
	})
	for i := range t.parts {
		if d := &t.parts[i]; d.busy {
			d.req.cancelled.Store(true)
			c.Cancel(&d.req, false)
		}
	}
}

// end makes t ready for another transfer.
func (t *transfer) end() {
	if t.grace != nil {
		t.grace.end()
		t.grace = nil
		for i := range t.parts {
			t.parts[i].req.reuse()
		}
	}
}
