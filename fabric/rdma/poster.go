package rdma

import (
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// poster posts the work of a connection to its queue pair: one goroutine at a time does, and goes on with what others
// have added meanwhile. While completions are delivered nobody else begins, so that all that results from them is posted
// together. When the queue pair is destroyed, and nobody posts or delivers completions any more, the connection is
// reaped.
type poster struct {
	conn  connection
	qp    verbs.QP
	batch *batch // of the goroutine that is posting
	own   batch  // for posts outside the delivery of completions

	mu       sync.Mutex // guards these, and what the connection says
	handling bool       // completions are being delivered
	posting  bool
	stopped  bool // nothing is posted any more
	ended    bool // the queue pair is destroyed
	reaped   bool
}

// connection is what a poster posts the work of.
type connection interface {
	// takeReady moves as much as the send queue has room for into the batch, and reports whether there is anything to
	// post. It is called with mu held.
	takeReady() bool
	fail(err error)
	connError(stage string, err error) error
	// reap is called once.
	reap()
}

// mayPost reports whether nobody is posting or about to. Called with mu held.
func (p *poster) mayPost() bool { return !p.posting && !p.handling && !p.ended && !p.stopped }

// post posts what there is, or leaves it to the goroutine that posts. Called with mu held, which it releases.
func (p *poster) post() {
	if p.mayPost() {
		p.postAll(&p.own)
	} else {
		p.mu.Unlock()
	}
}

// postAll posts using b until there is nothing left that can be posted. Called with mu held, which it releases, by the
// only goroutine that posts.
func (p *poster) postAll(b *batch) {
	p.posting, p.batch = true, b
	for !p.ended && !p.stopped && p.conn.takeReady() {
		p.mu.Unlock()
		err := b.post(p.qp)
		if err != nil {
			p.conn.fail(p.conn.connError("post", err))
		}
		p.mu.Lock()
		p.stopped = p.stopped || err != nil
	}
	p.posting = false
	p.unlock()
}

// unlock releases mu, and has the connection reaped if it is time for that.
func (p *poster) unlock() {
	reap := p.ended && !p.posting && !p.handling && !p.reaped
	p.reaped = p.reaped || reap
	p.mu.Unlock()
	if reap {
		p.conn.reap()
	}
}

// beginCompletions defers all posting to endCompletions, unless a goroutine is posting already.
func (p *poster) beginCompletions() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handling = !p.ended
	return p.handling
}

// endCompletions posts the work that resulted from completions.
func (p *poster) endCompletions(b *batch) {
	p.mu.Lock()
	p.handling = false
	if p.posting {
		p.mu.Unlock()
		return
	}
	p.postAll(b)
}
