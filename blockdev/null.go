package blockdev

import "golang.org/x/sys/unix"

// null is a volume that reads as zeroes and forgets what is written to it. Its only memory is one stretch of zeroes
// that all views share, so it shows what everything except the volume costs.
type null struct {
	info   Info
	zeroes []byte
	region [1]*Region
	life   *Lifetime
}

// nullRegion is the size of a usual transfer; longer views repeat it.
const nullRegion = 2 << 20

// NewNull returns a volume of o.Size bytes that stores nothing.
func NewNull(o Options) (Volume, error) {
	if err := validateSized("null", &o); err != nil {
		return nil, err
	}
	zeroes, err := unix.Mmap(-1, 0, nullRegion, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, OpenError("null", ErrCapacity, err)
	}
	return &null{
		info: Info{
			Kind: "null", Mode: "reads zeroes, forgets writes", Size: o.Size,
			BlockSize: o.BlockSize, PhysBlock: o.BlockSize, Align: 1,
			ReadOnly: o.ReadOnly, AtomicBlocks: 1, Discard: true, ZeroAfterDiscard: true,
		},
		zeroes: zeroes,
		region: [1]*Region{{Mem: zeroes}},
		life:   NewLifetime(),
	}, nil
}

func (v *null) Info() Info { return v.info }

func (v *null) Submit(r *Request) {
	if !v.life.Enter() {
		r.End(v.info.Gone(r.Op, r.Offset))
		return
	}
	err := Check(&v.info, v.info.Size, r)
	if err == nil && r.Op == OpRead {
		for _, b := range r.Bufs {
			clear(b)
		}
	}
	v.life.Leave()
	r.End(err)
}

func (v *null) Regions() []*Region { return v.region[:] }

func (v *null) View(segs []Segment, offset, length int64) ([]Segment, ViewToken, error) {
	if !v.life.Enter() {
		return segs, 0, v.info.Gone(OpRead, offset)
	}
	if err := CheckRange(&v.info, v.info.Size, OpRead, offset, length); err != nil {
		v.life.Leave()
		return segs, 0, err
	}
	if length > MaxSegments*nullRegion {
		v.life.Leave()
		return segs, 0, ErrView
	}
	for length > 0 {
		n := min(length, nullRegion)
		segs = append(segs, Segment{Region: v.region[0], Bytes: v.zeroes[:n:n]})
		length -= n
	}
	return segs, 0, nil
}

func (v *null) Release(ViewToken) { v.life.Leave() }

func (v *null) Close() error {
	if !v.life.Close() {
		return v.info.Closed("close")
	}
	return unix.Munmap(v.zeroes)
}
