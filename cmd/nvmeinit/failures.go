package main

import (
	"errors"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// failures are those of one attempt after another, by what failed, so that each is told once for as
// long as it lasts.
type failures struct {
	before, now map[string]bool
	fresh       []error // that didn't fail before
}

// begin begins an attempt.
func (f *failures) begin() {
	f.before, f.now, f.fresh = f.now, map[string]bool{}, nil
}

// add notes that what failed in this attempt, and why, as the user is told it.
func (f *failures) add(what string, why error) {
	if !f.now[what] && !f.before[what] {
		f.fresh = append(f.fresh, why)
	}
	f.now[what] = true
}

// keep says that this attempt couldn't find out about what failed before.
func (f *failures) keep() {
	for what := range f.before {
		f.now[what] = true
	}
}

// over reports whether what failed before doesn't any more.
func (f *failures) over(what string) bool { return f.before[what] && !f.now[what] }

// any reports whether anything failed.
func (f *failures) any() bool { return len(f.now) > 0 }

// err is what is to be told of this attempt.
func (f *failures) err() error { return errors.Join(f.fresh...) }

// serviceOf names the discovery service that an error is about. The text of an error may differ from
// attempt to attempt: by the port that it was tried from, for one.
func serviceOf(err error) string {
	var c *host.ConnectError
	if errors.As(err, &c) {
		return cli.Endpoint{Transport: c.Transport, Addr: c.Peer}.String()
	}
	return err.Error()
}
