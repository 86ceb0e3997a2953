package rdma

import (
	"errors"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// postedConn is a connection with work that a poster posts, and its queue pair. It records what happens, in order.
type postedConn struct {
	verbs.QP
	poster
	work   int
	during func() // called while something is posted
	err    error  // of posts
	log    []string
}

func newPostedConn(work int) *postedConn {
	c := &postedConn{work: work}
	c.conn, c.qp = c, c
	return c
}

func (c *postedConn) takeReady() bool {
	c.batch.reset()
	if c.work == 0 {
		return false
	}
	c.work--
	c.batch.send = append(c.batch.send, verbs.SendWR{})
	return true
}

func (c *postedConn) PostSend(wrs []verbs.SendWR) (int, error) {
	c.log = append(c.log, "post")
	if f := c.during; f != nil {
		c.during = nil
		f()
	}
	return len(wrs), c.err
}

func (c *postedConn) connError(_ string, err error) error { return err }
func (c *postedConn) fail(error)                          { c.log = append(c.log, "fail") }
func (c *postedConn) reap()                               { c.log = append(c.log, "reap") }

// add adds a piece of work, from some goroutine.
func (c *postedConn) add() {
	c.mu.Lock()
	c.work++
	c.post()
}

// end is the end of the queue pair.
func (c *postedConn) end() {
	c.mu.Lock()
	c.ended = true
	c.unlock()
}

// TestPoster: who posts goes on with what others add meanwhile, nobody posts while completions are delivered, or after a
// post failed; and the connection is reaped once, when its queue pair is destroyed and nobody uses it.
func TestPoster(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(c *postedConn)
		want []string
	}{
		{"added meanwhile", func(c *postedConn) {
			c.during = func() { c.add(); c.log = append(c.log, "added") }
			c.add()
		}, []string{"post", "added", "post"}},
		{"added while completions are delivered", func(c *postedConn) {
			c.beginCompletions()
			c.add()
			c.log = append(c.log, "added")
			c.endCompletions(new(batch))
		}, []string{"added", "post"}},
		{"completions while something is posted", func(c *postedConn) {
			c.during = func() { c.beginCompletions(); c.add(); c.endCompletions(new(batch)); c.log = append(c.log, "handled") }
			c.add()
		}, []string{"post", "handled", "post"}},
		{"a failed post", func(c *postedConn) {
			c.work, c.err = 5, errors.New("no")
			c.add()
			c.add()
		}, []string{"post", "fail"}},
		{"stopped", func(c *postedConn) {
			c.during = func() { c.mu.Lock(); c.stopped = true; c.mu.Unlock() }
			c.work = 5
			c.add()
			c.add()
		}, []string{"post"}},
		{"ended", func(c *postedConn) {
			c.end()
			c.add()
			if c.beginCompletions() {
				c.log = append(c.log, "begun")
			}
		}, []string{"reap"}},
		{"ended while something is posted", func(c *postedConn) {
			c.during = func() { c.end(); c.log = append(c.log, "ended") }
			c.work = 5
			c.add()
		}, []string{"post", "ended", "reap"}},
		{"ended while completions are delivered", func(c *postedConn) {
			c.beginCompletions()
			c.end()
			c.log = append(c.log, "ended")
			c.add()
			c.endCompletions(new(batch))
			c.endCompletions(new(batch))
		}, []string{"ended", "reap"}},
		{"ended while both", func(c *postedConn) {
			c.during = func() { c.beginCompletions(); c.end(); c.log = append(c.log, "ended") }
			c.add()
			c.log = append(c.log, "posted")
			c.endCompletions(new(batch))
		}, []string{"post", "ended", "posted", "reap"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := newPostedConn(0)
			c.run(conn)
			if !slices.Equal(conn.log, c.want) {
				t.Errorf("%q, want %q", conn.log, c.want)
			}
		})
	}
}
