package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// client runs the operations and reports.
func (t *test) client(ctx context.Context, out io.Writer) error {
	c := &check{test: t}
	if err := c.begin(ctx); err != nil {
		return err
	}
	start := time.Now()
	for posted, ended := 0, 0; ended < t.count; ended++ {
		for ; posted < t.count && posted-ended < t.depth; posted++ {
			if err := c.post(posted); err != nil {
				return err
			}
		}
		if _, err := t.Next(ctx); err != nil {
			return fmt.Errorf("operation %d: %w", ended, err)
		}
		if err := c.completed(ended); err != nil {
			return fmt.Errorf("operation %d: %w", ended, err)
		}
	}
	r := t.result(time.Since(start))
	if t.op.opcode != verbs.WRSend { // with SEND the server knows by itself
		if _, err := t.wire.swapKeys("word of the last operation", t.mine); err != nil {
			return err
		}
		if _, err := t.wire.swapReport(r); err != nil {
			return err
		}
	}
	if err := t.wire.finish(t.mine); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d of %d bytes, %.1f MiB/s, %.0f a second; %s\n", t.op.name, r.count, r.size, r.average, r.rate*1e6, c.verdict())
	return nil
}

func (t *test) result(d time.Duration) report {
	perSecond := float64(t.count) / d.Seconds()
	mib := perSecond * float64(t.size) / (1 << 20)
	return report{size: uint64(t.size), count: uint64(t.count), peak: mib, average: mib, rate: perSecond / 1e6}
}

// check makes a client's operations, and checks the results.
type check struct {
	*test
	first []byte // what the first READ returned
	start uint64 // the value that the first atomic found
}

// begin finds out what a compare and swap has to expect: one that swaps 0 for 0 changes
// nothing.
func (c *check) begin(ctx context.Context) error {
	switch c.op.opcode {
	case verbs.WRRDMAWrite, verbs.WRSend:
		for i := range c.Buf {
			c.Buf[i] = pattern(i % c.size)
		}
	case verbs.WRAtomicCmpAndSwp:
		if err := rc.Send(c.qp, c.request(0)); err != nil {
			return err
		}
		if _, err := c.Next(ctx); err != nil {
			return err
		}
		c.start = c.word(0)
	}
	return nil
}

// pattern returns byte i of a message that we send.
func pattern(i int) byte { return byte(i) + byte(i>>8) + 1 }

// request returns operation i without the operands of atomics.
func (c *check) request(i int) verbs.SendWR {
	return verbs.SendWR{
		WRID: uint64(i), Opcode: c.op.opcode, SGList: c.SGE(i%c.depth*c.size, c.size),
		RemoteAddr: c.peer.addr, RKey: c.peer.rkey,
	}
}

// post posts operation i. Compare and swap counts up, like fetch and add: each expects what the
// one before it stored.
func (c *check) post(i int) error {
	wr := c.request(i)
	switch c.op.opcode {
	case verbs.WRRDMARead:
		clear(c.slot(i % c.depth))
	case verbs.WRAtomicFetchAndAdd:
		wr.CompareAdd = 1
	case verbs.WRAtomicCmpAndSwp:
		wr.CompareAdd, wr.Swap = c.start+uint64(i), c.start+uint64(i)+1
	}
	return rc.Send(c.qp, wr)
}

// word returns what an atomic found, in the byte order of this machine.
func (c *check) word(i int) uint64 { return binary.NativeEndian.Uint64(c.slot(i)) }

// completed checks the result of operation i; operations of a queue pair complete in order.
func (c *check) completed(i int) error {
	switch c.op.opcode {
	case verbs.WRRDMARead:
		got := c.slot(i % c.depth)
		switch {
		case i == 0 && len(bytes.Trim(got, "\x00")) == 0:
			return errors.New("only zeros came, where memory is not that")
		case i == 0:
			c.first = bytes.Clone(got)
		case !bytes.Equal(got, c.first):
			return errors.New("the same memory had other data than before")
		}
	case verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp:
		got := c.word(i % c.depth)
		if i == 0 && c.op.opcode == verbs.WRAtomicFetchAndAdd {
			c.start = got
		}
		if want := c.start + uint64(i); got != want {
			return fmt.Errorf("it found %d, not %d", got, want)
		}
	}
	return nil
}

// verdict says what was verified.
func (c *check) verdict() string {
	switch c.op.opcode {
	case verbs.WRRDMARead:
		return "each brought the same data"
	case verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp:
		return "each found what the one before it stored"
	}
	return "all acknowledged"
}
