package main

import (
	"errors"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// failures tracks the failures of successive attempts, by what failed, so that each is reported once for as long as
// it lasts.
type failures struct {
	before, now map[string]bool
	fresh       []error // those that didn't fail before
}

// begin starts an attempt.
func (f *failures) begin() {
	f.before, f.now, f.fresh = f.now, map[string]bool{}, nil
}

// add records that what failed in this attempt, and why, in the words for the user.
func (f *failures) add(what string, why error) {
	if !f.now[what] && !f.before[what] {
		f.fresh = append(f.fresh, why)
	}
	f.now[what] = true
}

// keep says that this attempt couldn't determine whether earlier failures persist.
func (f *failures) keep() {
	for what := range f.before {
		f.now[what] = true
	}
}

// over reports whether what failed before no longer does.
func (f *failures) over(what string) bool { return f.before[what] && !f.now[what] }

// any reports whether anything failed.
func (f *failures) any() bool { return len(f.now) > 0 }

// err returns what to report about this attempt.
func (f *failures) err() error { return errors.Join(f.fresh...) }

// serviceOf names the discovery service that an error is about. The text of an error may differ between attempts,
// for example in the local port.
func serviceOf(err error) string {
	var c *host.ConnectError
	if errors.As(err, &c) {
		return cli.Endpoint{Transport: c.Transport, Addr: c.Peer}.String()
	}
	return err.Error()
}
