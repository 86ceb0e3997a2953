package simulation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// cancelled is how long a command may stay outstanding after its context has ended: the five seconds that nvme/host
// gives it, and the end of its connection.
const cancelled = 5*time.Second + 2*time.Second

// client is a user of one host, which does one operation after another.
type client struct {
	m   *machine
	rng *rand.Rand
	buf []byte
}

// run works until stop is closed.
func (c *client) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(c.rng.Int64N(int64(c.m.w.limits.think)))):
		}
		c.operate()
	}
}

func (c *client) operate() {
	w := c.m.w
	i := c.rng.IntN(len(w.disks))
	d := w.disks[i]
	first := c.rng.IntN(d.blocks)
	count := 1
	if c.rng.IntN(3) == 0 {
		count += c.rng.IntN(d.blocks - first)
	}
	r := rang{i, first, count}
	if c.rng.IntN(8) == 0 {
		if len(w.servers) == 1 { // two know nothing of each other's pairs
			c.swap(rang{i, first, 1})
		}
		return
	}
	ctx, done := c.patience()
	defer done()
	switch n := c.rng.IntN(14); {
	case n < 7:
		c.read(ctx, r)
	case n < 13:
		c.write(ctx, r, w.stamp())
	default:
		c.write(ctx, r, 0)
	}
}

// rang is a range of blocks of a disk.
type rang struct{ disk, first, count int }

// patience draws how long an operation may take; done checks that it has taken no longer.
func (c *client) patience() (ctx context.Context, done func()) {
	if c.rng.IntN(3) == 0 {
		return context.Background(), func() {}
	}
	limit := time.Millisecond << c.rng.IntN(13)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	began := time.Now()
	return ctx, func() {
		cancel()
		if took := time.Since(began); took > limit+cancelled {
			c.m.w.errorf("host %d: an operation with a timeout of %v took %v", c.m.index, limit, took)
		}
	}
}

// ops begins an operation on each block of r.
func (c *client) ops(r rang, a action) []*op {
	all := make([]*op, r.count)
	for i := range all {
		all[i] = &op{action: a, host: c.m.index}
	}
	return all
}

func (c *client) read(ctx context.Context, r rang) error {
	w := c.m.w
	size := w.disks[r.disk].block
	ops := c.ops(r, read)
	w.histories[r.disk].begin(r.first, ops)
	p := c.buf[:r.count*size]
	_, err := c.m.space(r.disk).ReadAt(ctx, p, int64(r.first*size))
	for i, o := range ops {
		o.unknown = err != nil
		o.value = valueOf(p[i*size:][:size], r.first+i)
	}
	w.histories[r.disk].end(r.first, ops)
	return err
}

// write writes blocks that hold value; of zeroes, it doesn't send the data.
func (c *client) write(ctx context.Context, r rang, value uint64) error {
	w := c.m.w
	size := w.disks[r.disk].block
	ops := c.ops(r, write)
	for _, o := range ops {
		o.value = value
	}
	w.histories[r.disk].begin(r.first, ops)
	ns, off := c.m.space(r.disk), int64(r.first*size)
	var err error
	switch p := c.buf[:r.count*size]; value {
	case 0:
		err = ns.WriteZeroes(ctx, off, int64(len(p)), false)
	default:
		for i := range ops {
			fill(p[i*size:][:size], r.first+i, value)
		}
		if c.rng.IntN(4) == 0 {
			_, err = ns.WriteAtFUA(ctx, p, off)
		} else {
			_, err = ns.WriteAt(ctx, p, off)
		}
	}
	for _, o := range ops {
		o.unknown = err != nil
	}
	w.histories[r.disk].end(r.first, ops)
	return err
}

// swap reads a block, and writes it if nobody else has, with a fused Compare and Write.
func (c *client) swap(r rang) {
	w := c.m.w
	size := w.disks[r.disk].block
	if c.read(context.Background(), r) != nil {
		return
	}
	old := append([]byte(nil), c.buf[:size]...)
	expected, value := valueOf(old, r.first), w.stamp()
	queue := c.queue()
	if queue == nil || expected == torn {
		return
	}
	data := make([]byte, size)
	fill(data, r.first, value)
	o := &op{action: swap, host: c.m.index, expected: expected, value: value}
	w.histories[r.disk].begin(r.first, []*op{o})
	ended := make(chan struct{}, 2)
	done := func(*host.Request) { ended <- struct{}{} }
	pair := [2]host.Request{{Data: old, Done: done}, {Data: data, Done: done}}
	for i, code := range []nvme.Opcode{nvme.OpCompare, nvme.OpWrite} {
		pair[i].Cmd.SetIO(code, uint32(r.disk+1), uint64(r.first), 1, 0)
		pair[i].Cmd.SetFuse([]nvme.Fuse{nvme.FuseFirst, nvme.FuseSecond}[i])
	}
	queue.Submit([]*host.Request{&pair[0], &pair[1]})
	<-ended
	<-ended
	switch {
	case pair[0].Err != nil || pair[1].Err != nil:
		o.unknown = true
	case pair[0].Status().OK() && pair[1].Status().OK():
	case pair[0].Status().Code() == nvme.StatusCompareFailure:
		o.action = differs
	default:
		o.unknown = true
	}
	w.histories[r.disk].end(r.first, []*op{o})
}

// queue returns a queue of any live path.
func (c *client) queue() *host.Queue {
	all := c.m.subsystem().Controllers()
	if len(all) == 0 {
		return nil
	}
	queues := all[c.rng.IntN(len(all))].Queues()
	return queues[c.rng.IntN(len(queues))]
}
