package blockdev

import (
	"errors"
	"fmt"
	"os"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// choosePath chooses how the data is accessed, and records the choice: direct I/O by the kernel's asynchronous I/O, by
// io_uring or by workers, or the page cache.
func (v *file) choosePath(o *Options) error {
	if o.IO == IOBuffered {
		v.throughCache("as asked")
		return nil
	}
	d, a, err := openDirect(v.locked, o.ReadOnly, v.info.BlockSize)
	switch {
	case err == nil:
		err = v.directly(d, a, o.IO)
	case errors.Is(KindOf(err), ErrBusy), errors.Is(KindOf(err), ErrUnreachable):
		return OpenError(v.info.Path, KindOf(err), err) // it may work later
	case o.IO != IOAuto:
		err = fmt.Errorf("direct I/O was asked: %w", err)
	default:
		v.throughCache(err.Error())
		return nil
	}
	if err != nil {
		return OpenError(v.info.Path, ErrUnsupported, err)
	}
	return nil
}

// throughCache makes transfers go through the page cache; why is the reason.
func (v *file) throughCache(why string) {
	v.store = newKernel(v.locked, v.locked)
	v.ranges = newRangeLock(v.queue)
	v.lanes.open(v.locked)
	v.info.Mode = "buffered: " + why
	if !v.device && !v.info.ReadOnly {
		v.writer = newWriter(v)
	}
}

// directly makes transfers go through d, which needs them aligned to a.
func (v *file) directly(d *os.File, a alignment, mode IOMode) error {
	k := newKernel(v.locked, d)
	v.store, v.direct, v.align = k, true, a
	v.info.Align = max(a.mem, 1)
	if a.sector(v.locked) >= v.info.BlockSize {
		v.info.AtomicBlocks = 1 // a block lies in one sector of the device
	} else {
		v.ranges = newRangeLock(v.queue)
	}
	why := ""
	if mode != IOUring {
		c, err := aio.OpenContext(aioEntries, k.ioFD)
		if err == nil {
			v.aio = newAIO(v, c)
			if !v.device {
				v.aio.writes = newAIOWrites(v.aio)
			}
			v.info.Mode = "direct I/O, asynchronous"
			return nil
		}
		why = ": " + err.Error()
	}
	if mode != IODirect {
		r, err := aio.OpenRing(aioEntries, k.ioFD)
		if err == nil {
			v.ring, v.aio = r, newAIO(v, r)
			v.info.Mode = "direct I/O, io_uring with " + r.Mode() + why
			return nil
		}
		if mode == IOUring {
			return err
		}
		why += ": " + err.Error()
	}
	v.info.Mode = "direct I/O, workers" + why
	return nil
}

// Register pins mem for io_uring, if that is in use: transfers to and from it then cost the system less.
func (v *file) Register(mem []byte) (unregister func()) {
	if v.ring == nil {
		return func() {}
	}
	n := v.lanes.enter()
	if n == nil {
		return func() {}
	}
	defer n.Leave()
	return v.ring.Register(mem)
}
