package blockdev

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newTestMemory returns a volume of some stripes and a bit; at the end each of its places must be free or in use.
func newTestMemory(t *testing.T, stripes int) *memory {
	v, err := NewMemory(Options{Size: int64(stripes)<<stripeShift + MinBlockSize, BlockSize: MinBlockSize})
	if err != nil {
		t.Fatal(err)
	}
	m := v.(*memory)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		var all []place
		for s := range m.places.of {
			all = append(all, m.places.stripe(int64(s)))
		}
		for x := m.places.free; x != 0; x = m.places.after(x) {
			all = append(all, x)
		}
		slices.Sort(all)
		for i, x := range all {
			if x != place(i+1) {
				t.Errorf("place %d is in use twice, or lost: %v", i+1, all)
				break
			}
		}
		if want := len(m.mem) >> stripeShift; len(all) != want {
			t.Errorf("%d places of %d are free or in use", len(all), want)
		}
	})
	return m
}

// lent writes b to off through a loan, and tells when that is done.
func (v *memory) lent(t *testing.T, off int64, b []byte) (done *atomic.Bool) {
	t.Helper()
	segs, loan, err := v.Lend(nil, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segs {
		b = b[copy(s.Bytes, b):]
	}
	return v.begin(t, &Request{Op: OpWrite, Offset: off, Length: int64(len(segs)) << stripeShift, Loan: loan})
}

func (v *memory) begin(t *testing.T, r *Request) (done *atomic.Bool) {
	done = new(atomic.Bool)
	r.Complete = func(r *Request) {
		if done.Store(true); r.Err != nil {
			t.Error(r.Err)
		}
	}
	v.Submit(r)
	return done
}

// read returns the first n bytes.
func (v *memory) read(t *testing.T, n int64) []byte {
	b := make([]byte, n)
	if !v.begin(t, &Request{Op: OpRead, Length: n, Bufs: [][]byte{b}}).Load() {
		t.Fatal("a read waits")
	}
	return b
}

// stripesOf returns stripes, each filled with one byte.
func stripesOf(bs ...byte) (all []byte) {
	for _, b := range bs {
		all = append(all, bytes.Repeat([]byte{b}, stripeSize)...)
	}
	return all
}

// TestMemoryWrittenBesideView: a slow reader doesn't keep others from writing whole stripes through loans, and
// continues to see the old content. Its old place is reused only afterwards.
func TestMemoryWrittenBesideView(t *testing.T) {
	v := newTestMemory(t, 4)
	v.lent(t, 0, stripesOf(1, 2))
	view, token, err := v.View(nil, 0, 2*stripeSize)
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(2) { // all spare places at once, and then some
		if !v.lent(t, 0, stripesOf(10+i, 20+i)).Load() {
			t.Error("a write of whole stripes waits for a view")
		}
		if got := v.read(t, 2*stripeSize); !bytes.Equal(got, stripesOf(10+i, 20+i)) {
			t.Error("what was written isn't read")
		}
	}
	if _, _, err := v.Lend(nil, 2*stripeSize); !errors.Is(err, ErrBusy) {
		t.Errorf("lent while a view may show it: %v", err)
	}
	var shown []byte
	for _, s := range view {
		shown = append(shown, s.Bytes...)
	}
	if !bytes.Equal(shown, stripesOf(1, 2)) {
		t.Error("what a view shows has changed")
	}
	v.Release(token)
	if !v.lent(t, stripeSize, stripesOf(3, 4)).Load() || !bytes.Equal(v.read(t, 3*stripeSize), stripesOf(11, 3, 4)) {
		t.Error("what was written after the view isn't read")
	}
}

// TestMemoryLoanCopied: a loan that is written across stripes is copied after existing views end, and then free.
func TestMemoryLoanCopied(t *testing.T) {
	v := newTestMemory(t, 4)
	v.lent(t, 0, stripesOf(1, 2, 3))
	_, token, err := v.View(nil, 2*stripeSize, MinBlockSize)
	if err != nil {
		t.Fatal(err)
	}
	done := v.lent(t, MinBlockSize, stripesOf(4, 5))
	if done.Load() {
		t.Error("what a view shows was written")
	}
	v.Release(token)
	want := slices.Concat(stripesOf(1)[:MinBlockSize], stripesOf(4, 5), stripesOf(3)[MinBlockSize:])
	if !done.Load() || !bytes.Equal(v.read(t, 3*stripeSize), want) {
		t.Error("what was written behind a view isn't read")
	}
}

// TestMemorySlowReader: a slow reader keeps no writer waiting for long, and continues to see the old content.
func TestMemorySlowReader(t *testing.T) {
	for name, x := range map[string]struct {
		op     Op
		off, n int64
	}{
		"a block":              {OpWrite, stripeSize, MinBlockSize},
		"across stripes":       {OpWrite, MinBlockSize, 2 * stripeSize},
		"zeroes":               {OpWriteZeroes, stripeSize / 2, 2 * stripeSize},
		"the part that's last": {OpWrite, 3 * stripeSize, MinBlockSize},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newTestMemory(t, 3)
				old := append(stripesOf(1, 2, 3), bytes.Repeat([]byte{4}, MinBlockSize)...)
				v.begin(t, &Request{Op: OpWrite, Length: int64(len(old)), Bufs: [][]byte{old}})
				view, token, err := v.View(nil, 0, int64(len(old)))
				if err != nil {
					t.Fatal(err)
				}
				want, fresh := slices.Clone(old), make([]byte, x.n)
				for i := range fresh {
					if x.op == OpWrite {
						fresh[i] = byte(i/MinBlockSize%251) + 5 // each block another
					}
				}
				copy(want[x.off:], fresh)
				done := v.begin(t, &Request{Op: x.op, Offset: x.off, Length: x.n, Bufs: [][]byte{fresh}})
				time.Sleep(patience / 2)
				synctest.Wait()
				if done.Load() {
					t.Error("the writer didn't wait at all")
				}
				time.Sleep(2 * patience)
				synctest.Wait()
				if !done.Load() || !bytes.Equal(v.read(t, int64(len(want))), want) {
					t.Errorf("after %v it is written: %v", 2*patience, done.Load())
				}
				var shown []byte
				for _, s := range view {
					shown = append(shown, s.Bytes...)
				}
				if !bytes.Equal(shown, old) {
					t.Error("what a view shows has changed")
				}
				v.Release(token)
			})
		})
	}
}

// TestMemorySlowReaderOfMany: writers that go on to come don't make the first one wait longer.
func TestMemorySlowReaderOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestMemory(t, 3)
		_, token, err := v.View(nil, 0, 3*stripeSize)
		if err != nil {
			t.Fatal(err)
		}
		write := func(stripe int64) *atomic.Bool {
			return v.begin(t, &Request{Op: OpWrite, Offset: stripe * stripeSize, Length: MinBlockSize, Bufs: [][]byte{make([]byte, MinBlockSize)}})
		}
		first := write(0)
		for range 4 {
			time.Sleep(patience / 2)
			write(1)
		}
		time.Sleep(patience / 4) // twice patience, and some more
		synctest.Wait()
		if !first.Load() {
			t.Error("the first writer still waits")
		}
		v.Release(token)
	})
}

// TestMemorySlowReaders: if no place is free, a writer waits until one is, or until the views end.
func TestMemorySlowReaders(t *testing.T) {
	for _, views := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			v := newTestMemory(t, 3)
			_, token, err := v.View(nil, 0, stripeSize)
			if err != nil {
				t.Fatal(err)
			}
			_, loan, err := v.Lend(nil, 3*stripeSize)
			if err != nil {
				t.Fatal(err)
			}
			_, last, err := v.Lend(nil, stripeSize)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, MinBlockSize)
			done := v.begin(t, &Request{Op: OpWrite, Length: MinBlockSize, Bufs: [][]byte{b}})
			time.Sleep(time.Minute)
			synctest.Wait()
			if done.Load() {
				t.Error("what a view shows was written")
			}
			if views {
				v.Release(token)
			} else {
				v.Return(last)
				time.Sleep(2 * patience)
				synctest.Wait()
			}
			if !done.Load() {
				t.Error("the writer waits on")
			}
			if !views {
				v.Release(token)
			} else {
				v.Return(last)
			}
			v.Return(loan)
		})
	}
}

// TestMemoryDiscardUnderView: what is discarded while it is sent is sent as it was, as its checksum may have left
// already.
func TestMemoryDiscardUnderView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, want := newTestMemory(t, 3), stripesOf(1, 2, 3)
		v.begin(t, &Request{Op: OpWrite, Length: int64(len(want)), Bufs: [][]byte{want}})
		view, token, err := v.View(nil, 0, 2*stripeSize)
		if err != nil {
			t.Fatal(err)
		}
		done := v.begin(t, &Request{Op: OpDiscard, Offset: MinBlockSize, Length: 3*stripeSize - MinBlockSize})
		time.Sleep(3 * patience)
		synctest.Wait()
		var shown []byte
		for _, s := range view {
			shown = append(shown, s.Bytes...)
		}
		if !bytes.Equal(shown, want[:2*stripeSize]) {
			t.Error("what a view shows was discarded")
		}
		if !done.Load() {
			t.Error("a slow reader holds up a discard")
		}
		v.Release(token)
		clear(want[MinBlockSize:])
		if !bytes.Equal(v.read(t, int64(len(want))), want) {
			t.Error("it isn't discarded")
		}
	})
}

// TestMemoryPieces: views, discards and zeroes reach stripes wherever they lie, also the partial one at the end.
func TestMemoryPieces(t *testing.T) {
	v := newTestMemory(t, 8)
	want := stripesOf(1, 2, 3, 4, 5, 6, 7, 8)
	want = append(want, bytes.Repeat([]byte{9}, MinBlockSize)...)
	v.begin(t, &Request{Op: OpWrite, Length: int64(len(want)), Bufs: [][]byte{want}})
	for _, at := range []int{6, 1, 3} {
		fresh := stripesOf(byte(10*at), byte(10*at+1))
		v.lent(t, int64(at)*stripeSize, fresh)
		copy(want[at*stripeSize:], fresh)
	}
	compare := func() {
		t.Helper()
		view, token, err := v.View(nil, 0, int64(len(want)))
		if err != nil {
			t.Fatal(err)
		}
		defer v.Release(token)
		var got []byte
		for _, s := range view {
			got = append(got, s.Bytes...)
		}
		if !bytes.Equal(got, want) || !bytes.Equal(v.read(t, int64(len(want))), want) {
			t.Error("it isn't what was written")
		}
	}
	compare()
	for _, op := range []Op{OpDiscard, OpWriteZeroes} {
		for _, x := range [][2]int{{stripeSize / 2, 4 * stripeSize}, {6*stripeSize + MinBlockSize, 2 * stripeSize}} {
			clear(want[x[0] : x[0]+x[1]])
			v.begin(t, &Request{Op: op, Offset: int64(x[0]), Length: int64(x[1])})
			compare()
		}
		v.lent(t, 2*stripeSize, stripesOf(30, 31, 32))
		copy(want[2*stripeSize:], stripesOf(30, 31, 32))
		compare()
	}
}

// TestMemoryGivenBack: whole pages of a discarded or zeroed range go back to the system.
func TestMemoryGivenBack(t *testing.T) {
	for _, op := range []Op{OpDiscard, OpWriteZeroes} {
		v := newTestMemory(t, 4)
		v.begin(t, &Request{Op: OpWrite, Length: 4 * stripeSize, Bufs: [][]byte{stripesOf(1, 2, 3, 4)}})
		v.begin(t, &Request{Op: op, Offset: stripeSize, Length: 2 * stripeSize})
		if n := resident(t, v.mem[stripeSize:3*stripeSize]); n != 0 {
			t.Errorf("%s: %d bytes are left", op, n)
		}
	}
}

// TestMemoryPagesGivenBack: so do those of a discard that is shorter than a stripe.
func TestMemoryPagesGivenBack(t *testing.T) {
	v := newTestMemory(t, 1)
	v.begin(t, &Request{Op: OpWrite, Length: stripeSize, Bufs: [][]byte{stripesOf(1)}})
	v.begin(t, &Request{Op: OpDiscard, Length: stripeSize / 2})
	if n := resident(t, v.mem[:stripeSize/2]); n != 0 && pageSize < stripeSize {
		t.Errorf("%d bytes are left", n)
	}
}

// TestMemoryOverGivenBack: if much is discarded or zeroed, spare places go back, too, though loans were written there.
func TestMemoryOverGivenBack(t *testing.T) {
	for _, op := range []Op{OpDiscard, OpWriteZeroes} {
		synctest.Test(t, func(t *testing.T) {
			const stripes = background >> stripeShift
			v := newTestMemory(t, stripes)
			for range 2 {
				for at := int64(0); at < stripes; at += MaxSegments {
					v.lent(t, at<<stripeShift, make([]byte, MaxSegments*stripeSize))
				}
			}
			if n := resident(t, v.mem); n < background+MaxSegments*stripeSize { // or more, where pages are huge
				t.Fatalf("%d bytes are there", n)
			}
			done := v.begin(t, &Request{Op: op, Length: background})
			synctest.Wait()
			if n := resident(t, v.mem); n != 0 || !done.Load() {
				t.Errorf("%s: done: %v; %d bytes are left", op, done.Load(), n)
			}
			if !v.lent(t, 0, stripesOf(2)).Load() || !bytes.Equal(v.read(t, 2*stripeSize), stripesOf(2, 0)) {
				t.Error("what was written then isn't read")
			}
		})
	}
}

// resident returns how many bytes of whole pages are in memory.
func resident(t *testing.T, mem []byte) (n int) {
	t.Helper()
	pages := make([]byte, len(mem)/pageSize)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		t.Skip(errno)
	}
	for _, p := range pages {
		n += int(p&1) * pageSize
	}
	return n
}

// TestMemoryInstance: each volume in memory is distinct from all others, in this program and in others.
func TestMemoryInstance(t *testing.T) {
	open := func() string {
		v, err := NewMemory(Options{Size: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		return v.Info().Instance
	}
	if a, b := open(), open(); a == "" || a == b {
		t.Errorf("instances %q and %q", a, b)
	}
}
