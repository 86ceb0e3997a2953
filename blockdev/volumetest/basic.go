package volumetest

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// testOptions tries to open volumes that can't exist.
func testOptions(t *testing.T, c *Config) {
	for _, o := range []blockdev.Options{
		{},
		{Size: -4096},
		{Size: c.Size, BlockSize: 1000},
		{Size: c.Size, BlockSize: 256},
		{Size: c.Size, BlockSize: 2 * blockdev.MaxBlockSize},
		{Size: c.Size, BlockSize: -512},
		{Size: c.Size + 512, BlockSize: 4096},
		{Size: c.Size + 1, BlockSize: 512},
	} {
		v, err := c.New(t)(o)
		if err == nil {
			err = v.Close()
		}
		wantKind(t, fmt.Sprintf("open with size %d, block %d", o.Size, o.BlockSize), err, blockdev.ErrInvalid)
	}
	v, err := c.New(t)(blockdev.Options{Size: c.Size})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := v.Info().BlockSize; got != blockdev.DefaultBlockSize {
		t.Errorf("block size %d where none was chosen, want %d", got, blockdev.DefaultBlockSize)
	}
}

func testInfo(s *session) {
	i := s.v.Info()
	if i.Kind == "" || i.Mode == "" {
		s.Errorf("kind %q, mode %q: people want to know", i.Kind, i.Mode)
	}
	if i.Size != s.c.Size || int64(i.BlockSize) != s.bs {
		s.Errorf("size %d, block %d; want %d, %d", i.Size, i.BlockSize, s.c.Size, s.bs)
	}
	if i.PhysBlock < i.BlockSize || i.PhysBlock%i.BlockSize != 0 {
		s.Errorf("physical block %d, logical %d", i.PhysBlock, i.BlockSize)
	}
	if i.Align < 1 || i.Align&(i.Align-1) != 0 {
		s.Errorf("alignment %d is no power of two", i.Align)
	}
	if i.ReadOnly || i.AtomicBlocks < 0 || i.ZeroAfterDiscard && !i.Discard {
		s.Errorf("%+v", i)
	}
}

func testReadWrite(s *session) {
	c := NewClient(s.v)
	end := s.c.Size - 3*s.bs
	s.expect(c, 0, make([]byte, 64<<10))
	s.expect(c, end, make([]byte, 3*s.bs))
	one, two, three := s.random(int(s.bs)), s.random(128<<10), s.random(int(3*s.bs))
	s.write(c, one, 0)
	s.write(c, two, s.c.Size/2-s.bs)
	s.write(c, three, end)
	s.expect(c, 0, one)
	s.expect(c, s.bs, make([]byte, s.bs))
	s.expect(c, s.c.Size/2-s.bs, two)
	s.expect(c, end, three)
	s.write(c, two, s.bs) // over what was read
	s.expect(c, s.bs, two)
	s.expect(c, 0, one)
	s.write(c, nil, s.c.Size) // nothing, at the very end
	s.expect(c, s.c.Size, nil)
}

// testVectors uses buffers of all lengths, also empty, and more of them than one system call takes.
func testVectors(s *session) {
	c := NewClient(s.v)
	for _, n := range []int{1, 2, 3, 17, 130, 300} {
		data := s.random(int(s.bs) * 80)
		var out, in [][]byte
		got := make([]byte, len(data))
		for i, rest := 0, 0; i < n; i++ {
			end := rest + s.rnd.IntN((len(data)-rest)/(n-i)*2+1)
			if end = min(end, len(data)); i == n-1 {
				end = len(data)
			}
			out, in = append(out, data[rest:end]), append(in, got[rest:end])
			rest = end
		}
		off := s.bs * s.rnd.Int64N(s.c.Size/s.bs-80)
		s.do(c, blockdev.Request{Op: blockdev.OpWrite, Offset: off, Length: int64(len(data)), Bufs: out})
		s.do(c, blockdev.Request{Op: blockdev.OpRead, Offset: off, Length: int64(len(data)), Bufs: in})
		if s.c.Forgets {
			clear(data)
		}
		s.compare(off, got, data)
		s.expect(c, off, data)
	}
}

// testAlignment uses buffers at every alignment, with room around them that must not change.
func testAlignment(s *session) {
	c := NewClient(s.v)
	room := make([]byte, 16<<10)
	base := -int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & 4095
	for _, shift := range []int{0, 1, 2, 3, 4, 8, 64, 511, 512, 513, 1024, 4095} {
		data := s.random(int(s.bs))
		b := room[base+shift:][:s.bs]
		copy(b, data)
		s.write(c, b, 3*s.bs)
		s.rnd.Fill(room)
		if s.c.Forgets {
			clear(data)
		}
		before, after := bytes.Clone(room[:base+shift]), bytes.Clone(room[base+shift+len(b):])
		if err := c.Read(b, 3*s.bs); err != nil {
			s.Fatal(err)
		}
		s.compare(3*s.bs, b, data)
		if !bytes.Equal(room[:base+shift], before) || !bytes.Equal(room[base+shift+len(b):], after) {
			s.Fatalf("alignment %d: a read wrote outside of its buffer", shift)
		}
	}
}

// testDurable writes with FUA, with Flush and with neither, and reopens the volume.
func testDurable(s *session) {
	c := NewClient(s.v)
	data := s.random(int(16 * s.bs))
	for i := range int64(16) {
		b := data[i*s.bs:][:s.bs]
		if err := c.Write(b, i*s.bs, i%2 == 0); err != nil {
			s.Fatal(err)
		}
		if i%5 == 0 {
			if err := c.Flush(); err != nil {
				s.Fatal(err)
			}
		}
	}
	s.expect(c, 0, data)
	if s.c.Volatile || s.c.Forgets {
		return
	}
	s.reopen(blockdev.Options{})
	if got := s.v.Info().Size; got != s.c.Size {
		s.Fatalf("size %d after opening again, want %d", got, s.c.Size)
	}
	s.expect(NewClient(s.v), 0, data)
}

func testZeroes(s *session) {
	c := NewClient(s.v)
	data := s.random(1 << 20)
	for i := range 24 {
		s.write(c, data, s.bs)
		off, n := s.cut(len(data))
		s.do(c, blockdev.Request{Op: blockdev.OpWriteZeroes, FUA: i&1 != 0, MayUnmap: i&2 != 0, Offset: s.bs + off, Length: n})
		clear(data[off : off+n])
		s.expect(c, s.bs, data)
		s.write(c, s.random(int(s.bs)), s.bs+off) // it can be written again
		s.rnd.Fill(data)
	}
}

func testDiscard(s *session) {
	c := NewClient(s.v)
	data := s.random(1 << 20)
	for range 16 {
		s.write(c, data, s.bs)
		off, n := s.cut(len(data))
		s.do(c, blockdev.Request{Op: blockdev.OpDiscard, Offset: s.bs + off, Length: n})
		if i := s.v.Info(); i.ZeroAfterDiscard {
			clear(data[off : off+n])
			s.expect(c, s.bs, data)
		} else {
			s.expect(c, s.bs, data[:off])
			s.expect(c, s.bs+off+n, data[off+n:])
		}
		s.rnd.Fill(data)
	}
}

// cut chooses a range of whole blocks within n bytes.
func (s *session) cut(n int) (off, length int64) {
	blocks := int64(n) / s.bs
	off = s.rnd.Int64N(blocks)
	length = 1 + s.rnd.Int64N(blocks-off)
	if s.rnd.IntN(2) == 0 {
		length = 1 + s.rnd.Int64N(min(16, blocks-off))
	}
	return off * s.bs, length * s.bs
}

// testLarge zeroes and discards the whole volume.
func testLarge(s *session) {
	c := NewClient(s.v)
	for _, op := range []blockdev.Op{blockdev.OpWriteZeroes, blockdev.OpDiscard} {
		for off := int64(0); off < s.c.Size; off += s.c.Size / 8 {
			s.write(c, s.random(int(s.bs)), off)
		}
		s.do(c, blockdev.Request{Op: op, Length: s.c.Size, MayUnmap: true})
		if op == blockdev.OpDiscard && !s.v.Info().ZeroAfterDiscard {
			continue
		}
		for off := int64(0); off < s.c.Size; off += s.c.Size / 8 {
			s.expect(c, off, make([]byte, 2*s.bs))
		}
	}
}

func testBadRequests(s *session) {
	c := NewClient(s.v)
	size := s.c.Size
	buf := make([]byte, 4*s.bs)
	mark := s.random(len(buf))
	s.write(c, mark, size-4*s.bs)
	for _, x := range []struct {
		off, n int64
		kind   error
	}{
		{size, s.bs, blockdev.ErrRange},
		{size - s.bs, 2 * s.bs, blockdev.ErrRange},
		{size + s.bs, 0, blockdev.ErrRange},
		{math.MaxInt64 &^ (s.bs - 1), s.bs, blockdev.ErrRange},
		{math.MaxInt64 &^ (s.bs - 1), 4 * s.bs, blockdev.ErrRange},
		{-s.bs, s.bs, blockdev.ErrInvalid},
		{math.MinInt64, s.bs, blockdev.ErrInvalid},
		{1, s.bs, blockdev.ErrInvalid},
		{s.bs / 2, s.bs, blockdev.ErrInvalid},
		{0, s.bs / 2, blockdev.ErrInvalid},
		{0, s.bs + 1, blockdev.ErrInvalid},
	} {
		for op := blockdev.OpRead; op <= blockdev.OpWriteZeroes; op++ {
			if op == blockdev.OpFlush {
				continue
			}
			err := c.Do(blockdev.Request{Op: op, Offset: x.off, Length: x.n, Bufs: [][]byte{buf[:x.n]}})
			wantKind(s, fmt.Sprintf("%s of %d at %d", op, x.n, x.off), err, x.kind)
		}
	}
	if _, lends := s.v.(blockdev.Lender); lends != (s.v.Info().LoanUnit > 0) {
		s.Errorf("it lends: %v; LoanUnit %d", lends, s.v.Info().LoanUnit)
	} else if !lends {
		err := c.Do(blockdev.Request{Op: blockdev.OpWrite, Length: s.bs, Loan: 1})
		wantKind(s, "a write of a loan that nobody gave", err, blockdev.ErrInvalid)
	}
	for _, r := range []*blockdev.Request{
		{Op: 0, Length: s.bs},
		{Op: 99, Length: s.bs},
		{Op: blockdev.OpRead, Length: s.bs},
		{Op: blockdev.OpWrite, Length: s.bs, Bufs: [][]byte{buf[:s.bs-1]}},
		{Op: blockdev.OpWrite, Length: s.bs, Bufs: [][]byte{buf}},
		{Op: blockdev.OpWriteZeroes, Offset: 0, Length: -s.bs},
	} {
		wantKind(s, fmt.Sprintf("%s with %d buffers", r.Op, len(r.Bufs)), c.Do(*r), blockdev.ErrInvalid)
	}
	s.expect(c, size-4*s.bs, mark)
}

func testReadOnly(s *session) {
	data := s.random(int(4 * s.bs))
	o := blockdev.Options{ReadOnly: true}
	if s.c.Volatile || s.c.Forgets {
		o.Size = s.c.Size
		clear(data)
	} else {
		s.write(NewClient(s.v), data, s.bs)
	}
	s.reopen(o)
	if !s.v.Info().ReadOnly {
		s.Error("Info doesn't say that the volume is read-only")
	}
	c := NewClient(s.v)
	for _, op := range []blockdev.Op{blockdev.OpWrite, blockdev.OpDiscard, blockdev.OpWriteZeroes} {
		err := c.Do(blockdev.Request{Op: op, Length: s.bs, Bufs: [][]byte{make([]byte, s.bs)}})
		wantKind(s, op.String(), err, blockdev.ErrReadOnly)
	}
	s.expect(c, s.bs, data)
	if err := c.Flush(); err != nil {
		s.Errorf("flush: %v", err)
	}
}

func testClose(s *session) {
	c := NewClient(s.v)
	buf := make([]byte, s.bs)
	if err := s.v.Close(); err != nil {
		s.Fatal(err)
	}
	for op := blockdev.OpRead; op <= blockdev.OpWriteZeroes; op++ {
		err := c.Do(blockdev.Request{Op: op, Length: s.bs, Bufs: [][]byte{buf}})
		wantKind(s, op.String()+" after close", err, blockdev.ErrGone)
	}
	if m, ok := s.v.(blockdev.Memory); ok {
		_, _, err := m.View(nil, 0, s.bs)
		wantKind(s, "view after close", err, blockdev.ErrGone)
	}
	wantKind(s, "second close", s.v.Close(), blockdev.ErrGone)
	s.v = nil
}
