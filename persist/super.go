package persist

import (
	"errors"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// readSuper returns the newest copy of the superblock; errs are the errors of the two copies. If the newest has a
// format that this program doesn't know it returns none: the older copy describes the volume before another program
// wrote to it, and isn't valid any more.
func readSuper(m *mapping) (s *superblock, errs [superCopies]error) {
	for i := range superCopies {
		if len(m.mem) < headSize {
			errs[i] = ErrNoVolume
			continue
		}
		b := make([]byte, superSize)
		if errs[i] = m.get(b, m.mem[i*superSize:]); errs[i] != nil {
			continue
		}
		c, err := parseSuper(b)
		if err == nil {
			err = c.check(uint64(len(m.mem)))
		}
		if errs[i] = err; err == nil && (s == nil || c.generation > s.generation) {
			s = c
		}
	}
	for _, err := range errs {
		var other *versionError
		if errors.As(err, &other) && s != nil && other.generation > s.generation {
			s = nil
		}
	}
	return s, errs
}

// writeSuper writes a superblock over the older of its copies. If that fails the next one goes to the same place: the
// other may be the only intact copy.
func (v *atomicVolume) writeSuper(s superblock) error {
	s.generation = v.super.generation + 1
	to := v.m.mem[s.generation%superCopies*superSize:][:superSize]
	if err := v.m.put(to, s.encode()); err != nil {
		return err
	}
	if err := v.harden(to); err != nil {
		return err
	}
	v.super = s
	return nil
}

// setSession records in the superblock who may rely on the working maps.
func (v *atomicVolume) setSession(s session) error {
	if v.super.session == s {
		return nil
	}
	next := v.super
	next.session = s
	return v.writeSuper(next)
}

// maySpoil returns why a file mustn't be written to in place: it holds a volume that is written out of place, or that
// can't be told.
func maySpoil(m *mapping) (kind, err error) {
	_, errs := readSuper(m)
	for _, err := range errs {
		if errors.Is(err, errFault) {
			return m.below.KindOf(err), err
		}
	}
	if areNone(errs) {
		return nil, nil
	}
	return blockdev.ErrInvalid, errors.New(
		"it holds a block-atomic volume, which writes in place would destroy: leave " + modeInPlace + " out")
}

// holdsNoVolume reports whether neither copy is a superblock.
func holdsNoVolume(m *mapping) bool {
	_, errs := readSuper(m)
	return areNone(errs)
}

func areNone(errs [superCopies]error) bool {
	return errors.Is(errs[0], ErrNoVolume) && errors.Is(errs[1], ErrNoVolume)
}
