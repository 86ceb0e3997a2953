package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
)

const (
	// stageSize is room for headers and digests of one send call: some 200 PDUs.
	stageSize = 16 << 10
	// maxWriteIov is how many pieces one send call gathers.
	maxWriteIov = 256
)

// batch is the content of one send call: headers and digests, staged next to each other, and data,
// gathered from where it lies.
type batch struct {
	stage []byte // never grows beyond its capacity: iov points into it
	iov   [maxWriteIov]unix.Iovec
	first int  // iov[:first] is sent
	n     int  // iov[:n] is in use
	open  bool // iov[n-1] ends where stage ends, and may be extended

	onDemand bool // pages of gathered data may be missing

	pdus [pdu.NumTypes]uint32
	data int
}

// fits reports whether there is room for the given numbers of staged bytes and of pieces.
func (b *batch) fits(staged, pieces int) bool {
	return len(b.stage)+staged <= cap(b.stage) && b.n+pieces <= maxWriteIov
}

// commit takes s, which is stage with bytes appended (no more than fits allowed).
func (b *batch) commit(s []byte) {
	added := s[len(b.stage):]
	b.stage = s
	if len(added) == 0 {
		return
	}
	if b.open {
		v := &b.iov[b.n-1]
		v.SetLen(int(v.Len) + len(added))
		return
	}
	setIov(&b.iov[b.n], added)
	b.n++
	b.open = true
}

// gather adds data without copying it.
func (b *batch) gather(p []byte) {
	if len(p) == 0 {
		return
	}
	setIov(&b.iov[b.n], p)
	b.n++
	b.open = false
	b.data += len(p)
}

// gatherWhole adds all the data of a PDU, and its digest if there is one.
func (b *batch) gatherWhole(p []byte, f pdu.Format) {
	b.gather(p)
	if f.DataDigest() {
		b.commit(pdu.AppendDigest(b.stage, pdu.Digest(p)))
	}
}

func (b *batch) empty() bool { return b.first == b.n }

// unsent returns what is still to send.
func (b *batch) unsent() []unix.Iovec { return b.iov[b.first:b.n] }

// length returns the number of bytes still to send.
func (b *batch) length() int {
	n := 0
	for i := b.first; i < b.n; i++ {
		n += int(b.iov[i].Len)
	}
	return n
}

// sent records that the kernel took n bytes.
func (b *batch) sent(n int) {
	for n > 0 {
		v := &b.iov[b.first]
		if uint64(n) < v.Len {
			v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
			v.SetLen(int(v.Len) - n)
			return
		}
		n -= int(v.Len)
		v.Base = nil
		b.first++
	}
}

// reset empties a batch that was sent.
func (b *batch) reset() {
	b.stage = b.stage[:0]
	b.first, b.n, b.open, b.onDemand = 0, 0, false, false
}
