package blockdev

// commits makes writes durable, for flushes and for writes with FUA that the system can't
// make durable by themselves. One sync runs at a time and all who wait for it are told of
// its error, since the system tells it only once.
type commits struct {
	group FlushGroup

	// Of the one that runs the group's syncs.
	untold error // of a sync that no flush was told of
	told   bool  // a flush was told of untold
}

// join adds r, and returns true where r must run.
func (c *commits) join(r *Request) bool { return c.group.Lead(r) }

// run answers r, for which join returned true, and those that joined meanwhile.
//
// A failed write-back may concern writes that only a flush can vouch for, though it was a
// write with FUA that met it. So the next flush fails too.
func (c *commits) run(r *Request, sync func() error, done func(*Request, error)) {
	c.group.Run(r, func() error {
		if c.told {
			c.untold, c.told = nil, false
		}
		err := sync()
		if err != nil {
			c.untold = err
		}
		return err
	}, func(r *Request, err error) {
		if r.Op == OpFlush && c.untold != nil {
			err, c.told = c.untold, true
		}
		done(r, err)
	})
}
