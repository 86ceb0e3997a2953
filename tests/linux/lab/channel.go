package lab

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/linux/control"
)

// channel is the lab's end of the control port of a machine.
type channel struct {
	conn net.Conn

	mu      sync.Mutex // guards the rest
	out     *gob.Encoder
	last    uint64
	waiting map[uint64]*command
	err     error // why the channel is dead
}

// command gathers the replies to one request.
type command struct {
	stdout, stderr []byte
	code           int
	err            error
	ended          chan struct{}
}

// dial connects to the control port and waits for the agent's first word.
func dial(ctx context.Context, socket string) (*channel, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", socket)
		if err == nil {
			return newChannel(ctx, conn)
		}
		select { // QEMU makes the socket when it starts
		case <-ctx.Done():
			return nil, fmt.Errorf("control port: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func newChannel(ctx context.Context, conn net.Conn) (*channel, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	in := gob.NewDecoder(conn)
	var hello control.Reply
	err := in.Decode(&hello)
	if !stop() {
		err = errors.New("the machine did not come up in time")
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("control port: %w", err)
	}
	c := &channel{conn: conn, out: gob.NewEncoder(conn), waiting: map[uint64]*command{}}
	go c.receive(in)
	return c, nil
}

// receive passes replies to the commands that wait for them, until the channel dies.
func (c *channel) receive(in *gob.Decoder) {
	for {
		var r control.Reply
		err := in.Decode(&r)
		c.mu.Lock()
		if err != nil {
			c.err = fmt.Errorf("control port: %w", err)
			for id, w := range c.waiting {
				w.err = c.err
				c.end(id, w)
			}
			c.mu.Unlock()
			return
		}
		if w := c.waiting[r.ID]; w != nil {
			w.stdout = append(w.stdout, r.Stdout...)
			w.stderr = append(w.stderr, r.Stderr...)
			if r.Ended {
				w.code = r.Code
				if r.Err != "" {
					w.err = errors.New(r.Err)
				}
				c.end(r.ID, w)
			}
		}
		c.mu.Unlock()
	}
}

// end is called with c.mu held.
func (c *channel) end(id uint64, w *command) {
	delete(c.waiting, id)
	close(w.ended)
}

// run runs a shell line to its end. When ctx ends, it is killed.
func (c *channel) run(ctx context.Context, line string) (stdout, stderr string, code int, err error) {
	w := &command{ended: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return "", "", 0, c.err
	}
	c.last++
	id := c.last
	c.waiting[id] = w
	err = c.out.Encode(control.Request{ID: id, Line: line})
	c.mu.Unlock()
	if err != nil {
		return "", "", 0, err
	}
	select {
	case <-w.ended:
		return string(w.stdout), string(w.stderr), w.code, w.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	_ = c.out.Encode(control.Request{ID: id, Cancel: true})
	c.mu.Unlock()
	select {
	case <-w.ended:
		return string(w.stdout), string(w.stderr), w.code, ctx.Err()
	case <-time.After(10 * time.Second): // a frozen machine, or a task that no signal reaches
		return "", "", 0, fmt.Errorf("%w, and it can't be killed", ctx.Err())
	}
}

func (c *channel) close() { c.conn.Close() }

// dead reports whether the machine has ended.
func (c *channel) dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}
