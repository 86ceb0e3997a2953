package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// pages is memory for a ring.
func pages() []byte {
	b := make([]byte, Size+page)
	off := -uintptr(unsafe.Pointer(&b[0])) % page
	return b[off : off+Size]
}

func pair(t testing.TB) (*Writer, *Reader) {
	t.Helper()
	b := pages()
	w, err := NewWriter(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(b)
	if err != nil {
		t.Fatal(err)
	}
	return w, r
}

// put puts n bytes that begin with k, cut in three.
func put(w *Writer, n int, k byte) bool {
	b := bytes.Repeat([]byte{k}, n)
	return w.Put([][]byte{b[:n/3], nil, b[n/3 : n/2], b[n/2:]}, n, n/4+1, k)
}

// take takes the next train and says whether it is what put puts.
func take(t *testing.T, r *Reader, n int, k byte) {
	t.Helper()
	got, ok, err := r.Next()
	if err != nil || !ok {
		t.Fatalf("nothing to take: %v", err)
	}
	if !bytes.Equal(got.Bytes, bytes.Repeat([]byte{k}, n)) || got.Segment != n/4+1 || got.Class != k {
		t.Fatalf("%d bytes, %d a datagram, class %d; want %d, %d, %d", len(got.Bytes), got.Segment, got.Class, n, n/4+1, k)
	}
}

func TestTrainsPassUnchanged(t *testing.T) {
	w, r := pair(t)
	if _, ok, err := r.Next(); ok || err != nil || !r.Empty() {
		t.Fatalf("something in an empty ring: %v", err)
	}
	for i, n := range []int{1, 47, 48, 49, 64, 4096, MaxTrain} {
		if !put(w, n, byte(i)) {
			t.Fatalf("no room for %d bytes", n)
		}
		if r.Empty() {
			t.Fatal("empty with a train in it")
		}
		take(t, r, n, byte(i))
		r.Release()
	}
	if put(w, MaxTrain+1, 0) {
		t.Error("a train took more than the longest may")
	}
}

// TestLayout pins where things are in the memory, which programs of several versions share. Another layout takes another
// number in the offer of package neighbor.
func TestLayout(t *testing.T) {
	b := pages()
	w, err := NewWriter(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(b)
	if err != nil {
		t.Fatal(err)
	}
	at := func(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
	put(w, 100, 7)
	take(t, r, 100, 7)
	r.Release()
	put(w, 8, 9)
	r.Sleep()
	const second = 4096 + 128
	sleep := binary.NativeEndian.Uint32(b[128:])
	if len(b) != 4096+2<<20 || at(0) != 192 || at(64) != 128 || sleep != 1 {
		t.Errorf("%d bytes; %d written, %d taken, sleep %d", len(b), at(0), at(64), sleep)
	}
	var header []byte
	for _, field := range []uint32{8, 3, 9, 0} { // bytes, bytes of a datagram, class
		header = binary.NativeEndian.AppendUint32(header, field)
	}
	if want := append(header, bytes.Repeat([]byte{9}, 8)...); !bytes.Equal(b[second:second+24], want) {
		t.Errorf("a train is %x, want %x", b[second:second+24], want)
	}
}

// TestBeginAndEnd: what was begun is visible to the reader once it has ended, and what never ended leaves no trace.
func TestBeginAndEnd(t *testing.T) {
	w, r := pair(t)
	for i, n := range []int{1, 64, MaxTrain, 4096} {
		to := w.Begin(MaxTrain, 1, 1)
		if len(to) != MaxTrain || cap(to) != MaxTrain {
			t.Fatalf("room for %d bytes (%d), want %d", len(to), cap(to), MaxTrain)
		}
		to = w.Begin(n, n/4+1, byte(i)) // instead
		if len(to) != n {
			t.Fatalf("room for %d bytes, want %d", len(to), n)
		}
		copy(to, bytes.Repeat([]byte{byte(i)}, n))
		if !r.Empty() {
			t.Fatal("the reader has what was only begun")
		}
		w.End()
		take(t, r, n, byte(i))
		r.Release()
	}
	if w.Begin(MaxTrain+1, 1, 1) != nil {
		t.Error("a train may take more than the longest")
	}
	for put(w, MaxTrain, 1) {
	}
	if w.Begin(MaxTrain, 1, 1) != nil {
		t.Error("there is room in a full ring")
	}
}

// TestPutWithin: if parts hold more than the length of their train, the excess is left out, and never written over what
// the reader has not released.
func TestPutWithin(t *testing.T) {
	w, r := pair(t)
	for i := range w.records {
		w.records[i] = 0xEE
	}
	const n = 2048
	if !w.Put([][]byte{bytes.Repeat([]byte{1}, 1536), bytes.Repeat([]byte{2}, 1536)}, n, n, 0) {
		t.Fatal("no room")
	}
	want := append(bytes.Repeat([]byte{1}, 1536), bytes.Repeat([]byte{2}, n-1536)...)
	if got, ok, err := r.Next(); !ok || err != nil || !bytes.Equal(got.Bytes, want) {
		t.Fatalf("the train is another: %v", err)
	}
	if end := recordHeader + n; w.records[end] != 0xEE {
		t.Errorf("something was written behind a train of %d bytes", n)
	}
}

// TestFull: what finds no room is refused and leaves the rest intact, until Release has made room.
func TestFull(t *testing.T) {
	for _, n := range []int{1, 5000, MaxTrain} {
		w, r := pair(t)
		for lap := range 3 {
			puts := 0
			for put(w, n, byte(puts)) {
				puts++
			}
			if most := Capacity / int(room(n)); puts > most || puts < most-int(room(n))/n-1 {
				t.Fatalf("lap %d: %d trains of %d bytes found room, want up to %d", lap, puts, n, most)
			}
			for k := range puts {
				take(t, r, n, byte(k))
			}
			if put(w, n, 0) {
				t.Fatal("room before Release")
			}
			r.Release()
		}
	}
}

// TestRoom: records begin where a header fits before the end of the memory, and waste no space.
func TestRoom(t *testing.T) {
	for n, want := range map[int]uint64{0: 64, 1: 64, 48: 64, 49: 128, 112: 128, 113: 192, MaxTrain: 65536} {
		if got := room(n); got != want {
			t.Errorf("%d bytes take %d, want %d", n, got, want)
		}
	}
	w, r := pair(t)
	for lap := range 2 {
		for n := range Capacity / recordAlign {
			if !put(w, 48, byte(n)) {
				t.Fatalf("lap %d: no room for train %d of %d", lap, n, Capacity/recordAlign)
			}
		}
		if put(w, 1, 0) {
			t.Errorf("lap %d: a train found room in a full ring", lap)
		}
		for n := range Capacity / recordAlign {
			take(t, r, 48, byte(n))
		}
		if r.Drained() {
			t.Errorf("lap %d: drained before Release", lap)
		}
		if r.Release(); !r.Drained() || !r.Empty() {
			t.Errorf("lap %d: not drained after everything was taken and released", lap)
		}
	}
}

// TestSleep: the writer sees each time that the reader sleeps, and a reader that falls asleep sees what was put before.
func TestSleep(t *testing.T) {
	w, r := pair(t)
	if w.Asleep() != 0 {
		t.Error("asleep in the beginning")
	}
	r.sleeps = math.MaxUint32 - 1
	last := uint32(0)
	for range 3 {
		r.Sleep()
		put(w, 1, 1)
		if now := w.Asleep(); now == 0 || now == last || r.Empty() {
			t.Errorf("asleep: %d, %d before; empty: %t", now, last, r.Empty())
		}
		last = w.Asleep()
		r.Wake()
		if w.Asleep() != 0 {
			t.Error("asleep when awake")
		}
	}
}

// TestWoken: a reader sleeps whenever there is nothing, and a writer wakes it exactly once for each sleep.
func TestWoken(t *testing.T) {
	w, r := pair(t)
	const trains = 100_000
	bell := make(chan struct{}, 1)
	go func() {
		last := uint32(0)
		for k := range trains {
			for !put(w, 40, byte(k)) {
				runtime.Gosched()
			}
			if sleep := w.Asleep(); sleep != 0 && sleep != last {
				last = sleep
				bell <- struct{}{}
			}
		}
	}()
	for k := 0; k < trains; {
		if r.Sleep(); r.Empty() {
			if _, ok := soon.Receive(bell); !ok {
				t.Fatalf("not woken for train %d", k)
			}
		}
		r.Wake()
		for ; !r.Empty(); k++ {
			take(t, r, 40, byte(k))
		}
		r.Release()
	}
}

// TestConcurrent passes trains of random lengths between two goroutines; they must arrive whole and in order.
func TestConcurrent(t *testing.T) {
	w, r := pair(t)
	const trains = 20000
	lengths := func() func() int {
		rng := rand.New(rand.NewPCG(1, 2))
		return func() int {
			if rng.IntN(20) == 0 {
				return 1 + rng.IntN(MaxTrain)
			}
			return 1 + rng.IntN(5000)
		}
	}
	go func() {
		next := lengths()
		for k := range trains {
			for n := next(); !put(w, n, byte(k)); {
				runtime.Gosched()
			}
		}
	}()
	next := lengths()
	for k := 0; k < trains; {
		if r.Empty() {
			runtime.Gosched()
			continue
		}
		take(t, r, next(), byte(k))
		k++
		if k%3 == 0 {
			r.Release()
		}
	}
	if !r.Empty() {
		t.Error("something is left")
	}
}

// TestMemory: memory of another size, or that isn't page-aligned, is refused.
func TestMemory(t *testing.T) {
	b := pages()
	odd := unsafe.Slice(&make([]byte, 2*Size)[0], 2*Size)
	odd = odd[(64-uintptr(unsafe.Pointer(&odd[0])))%page:][:Size]
	for _, bad := range [][]byte{nil, b[:Size-1], odd} {
		if _, err := NewWriter(bad); err == nil {
			t.Errorf("%d bytes were taken for writing", len(bad))
		}
		if _, err := NewReader(bad); err == nil {
			t.Errorf("%d bytes were taken for reading", len(bad))
		}
	}
}

// TestCorrupt: invalid data from a writer ends the ring, wherever in it the reader is.
func TestCorrupt(t *testing.T) {
	const length = 128 // of the records, in bytes
	for name, harm := range map[string]func(w *Writer, at uint64){
		"more than the ring holds":     func(w *Writer, at uint64) { w.tail.Store(at + Capacity + 64) },
		"a position before the last":   func(w *Writer, at uint64) { w.tail.Store(at - 1) },
		"a train too long":             func(w *Writer, at uint64) { w.header(at).bytes = MaxTrain + 1; w.tail.Store(at + Capacity) },
		"a train longer than was said": func(w *Writer, at uint64) { w.header(at).bytes = length },
		"a train over the end":         func(w *Writer, at uint64) { w.header(at).bytes = MaxTrain; w.tail.Store(at + Capacity) },
		"a class too high":             func(w *Writer, at uint64) { w.header(at).class = 256 },
		"a gap longer than was said":   func(w *Writer, at uint64) { w.header(at).bytes = skip },
		"both sides' positions":        func(w *Writer, _ uint64) { w.tail.Store(1 << 40); w.head.Store(1<<40 - 64) },
	} {
		for _, before := range []uint64{0, length, Capacity - 2*length} {
			if name == "a train over the end" && before+MaxTrain < Capacity {
				continue // it is valid there
			}
			w, r := pair(t)
			w.next, w.freed = before, before
			r.next, r.written, r.released = before, before, before
			r.head.Store(before)
			put(w, 100, 1)
			harm(w, before)
			if _, ok, err := r.Next(); ok || !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s at %d: taken %t, error %v; want ErrCorrupt", name, before, ok, err)
			}
		}
	}
}

// TestCorruptBehind: a write position before what was taken ends the ring, even if that wasn't released yet.
func TestCorruptBehind(t *testing.T) {
	const length = 128 // of the records, in bytes
	for _, back := range []uint64{64, length, 2 * length} {
		w, r := pair(t)
		for k := range 2 {
			put(w, length-recordHeader, byte(k))
			take(t, r, length-recordHeader, byte(k))
		}
		w.tail.Store(2*length - back)
		if got, ok, err := r.Next(); ok || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes back: %d bytes taken, %t, error %v; want ErrCorrupt", back, len(got.Bytes), ok, err)
		}
	}
}

// TestCorruptWhileHeld: a writer that has written over what was taken and not released yet ends the ring.
func TestCorruptWhileHeld(t *testing.T) {
	w, r := pair(t)
	put(w, 1000, 1)
	take(t, r, 1000, 1)
	w.tail.Store(Capacity + recordAlign)
	if got, ok, err := r.Next(); ok || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%d bytes taken, %t, error %v; want ErrCorrupt", len(got.Bytes), ok, err)
	}
}

// TestLyingReader: an impossible read position makes no room.
func TestLyingReader(t *testing.T) {
	for _, head := range []uint64{Capacity + 64, math.MaxUint64} {
		w, r := pair(t)
		for lap := range uint64(2) { // the second begins with a reader that told the truth
			for put(w, 1000, 1) {
				continue
			}
			w.head.Store(head + lap*Capacity)
			if put(w, 1000, 1) {
				t.Errorf("lap %d: a reader at %d made room", lap, head)
			}
			for !r.Empty() {
				take(t, r, 1000, 1)
			}
			r.Release()
		}
	}
}

func TestNoAllocation(t *testing.T) {
	w, r := pair(t)
	parts := [][]byte{make([]byte, 64), make([]byte, 4096)}
	if n := testing.AllocsPerRun(1000, func() {
		w.Put(parts, 64+4096, 64+4096, 2)
		if _, ok, _ := r.Next(); !ok {
			t.Error("nothing there")
		}
		r.Release()
	}); n > 0 {
		t.Errorf("%v allocations for each train", n)
	}
}

// FuzzReader has a reader at one position read up to another. It must stay within the ring, and within what is said to
// be there.
func FuzzReader(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(uint64(0), uint64(128), []byte("\x40\x00\x00\x00\x40\x00\x00\x00\x02\x00\x00\x00"))
	f.Add(uint64(Capacity-64), uint64(128), []byte("\xff\xff\xff\xff"))
	f.Add(uint64(1)<<63, uint64(Capacity), []byte("\xff\xff\x00\x00"))
	b := pages()
	f.Fuzz(func(t *testing.T, next, length uint64, records []byte) {
		r, err := NewReader(b)
		if err != nil {
			t.Fatal(err)
		}
		next &^= recordAlign - 1
		r.next, r.written, r.released = next, next, next
		r.tail.Store(next + length)
		n := copy(r.records[next&(Capacity-1):], records)
		defer clear(r.records[next&(Capacity-1):][:n])
		for sum := uint64(0); ; {
			train, ok, err := r.Next()
			if !ok {
				if err == nil && r.next != next+length {
					t.Errorf("ended at %d without an error, want %d", r.next, next+length)
				}
				return
			}
			if sum += room(len(train.Bytes)); sum > length {
				t.Fatalf("trains take %d bytes of %d", sum, length)
			}
		}
	})
}

func BenchmarkRing(b *testing.B) {
	w, r := pair(b)
	parts := [][]byte{make([]byte, 64), make([]byte, 4096)}
	b.SetBytes(64 + 4096)
	for b.Loop() {
		w.Put(parts, 64+4096, 64+4096, 2)
		if _, ok, _ := r.Next(); !ok {
			b.Fatal("nothing there")
		}
		r.Release()
	}
}
