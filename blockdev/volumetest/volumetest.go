// Package volumetest provides the acceptance suite that every kind of volume must pass, including its wrappers.
//
//	func TestVolume(t *testing.T) {
//		volumetest.Run(t, volumetest.Config{New: …})
//	}
package volumetest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Config says how volumes of a kind are made and what is special about them.
type Config struct {
	// New makes a place for one volume, and returns the function that opens it with the given options: the first time
	// it creates it, with o.Size bytes that read as zeroes. It must refuse impossible options
	// (blockdev.Options.Validate, blockdev.CheckSize) with a blockdev.OpError of kind blockdev.ErrInvalid, as
	// blockdev.OpenError makes one: some of the suite's are wrong on purpose.
	New func(t *testing.T) func(o blockdev.Options) (blockdev.Volume, error)
	// Volatile: the content is gone after Close.
	Volatile bool
	// Forgets: writes are swallowed and reads return zeroes.
	Forgets bool
	// Size of the volumes, a multiple of 1 MiB; 0 means 8 MiB.
	Size int64
	// Blocks are the block sizes that a volume can have; nil means BlockSizes.
	Blocks []int
}

// BlockSizes are the block sizes that hosts use.
var BlockSizes = []int{512, 4096}

// Run runs the suite, with each block size.
func Run(t *testing.T, c Config) {
	c.Size = cmp.Or(c.Size, 8<<20)
	if c.Blocks == nil {
		c.Blocks = BlockSizes
	}
	t.Run("options", func(t *testing.T) { testOptions(t, &c) })
	for _, bs := range c.Blocks {
		t.Run(fmt.Sprintf("%d-byte blocks", bs), func(t *testing.T) {
			runAll(t, &c, bs)
		})
	}
	t.Run("whole blocks of the largest size", func(t *testing.T) {
		testWholeBlocks(newSession(t, &c, blockdev.MaxBlockSize))
	})
}

func runAll(t *testing.T, c *Config, bs int) {
	v, err := c.New(t)(blockdev.Options{Size: c.Size, BlockSize: bs})
	if err != nil {
		t.Fatal(err)
	}
	_, shows := v.(blockdev.Memory)
	_, lends := v.(blockdev.Lender)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) { x.run(newSession(t, c, bs)) })
	}
	for _, x := range viewTests {
		if !shows || x.writes && c.Forgets {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			s := newSession(t, c, bs)
			x.run(s, s.v.(blockdev.Memory))
		})
	}
	for _, x := range loanTests {
		if !lends {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			s := newSession(t, c, bs)
			x.run(s, s.v.(blockdev.Lender))
		})
	}
}

var tests = []struct {
	name string
	run  func(*session)
}{
	{"info", testInfo},
	{"read and write", testReadWrite},
	{"vectors", testVectors},
	{"alignment", testAlignment},
	{"durable", testDurable},
	{"zeroes", testZeroes},
	{"discard", testDiscard},
	{"large ranges", testLarge},
	{"bad requests", testBadRequests},
	{"read-only", testReadOnly},
	{"model", testModel},
	{"whole blocks", testWholeBlocks},
	{"close", testClose},
	{"close with work outstanding", testCloseOutstanding},
	{"allocations", testAllocations},
}

// viewTests are for volumes whose memory can be viewed.
var viewTests = []struct {
	name   string
	writes bool // written data must be there
	run    func(*session, blockdev.Memory)
}{
	{"views", false, testViews},
	{"views and writers", true, testViewWriters},
	{"views and close", false, testViewClose},
	{"views and prefetching", false, testPrefetch},
}

// session is the volume of one test.
type session struct {
	*testing.T
	c    *Config
	open func(o blockdev.Options) (blockdev.Volume, error)
	v    blockdev.Volume
	bs   int64
	seed uint64
	rnd  random
}

func newSession(t *testing.T, c *Config, bs int) *session {
	s := &session{T: t, c: c, bs: int64(bs), open: c.New(t)}
	s.seed = rand.Uint64()
	s.rnd = newRandom(s.seed, 0)
	s.v = s.mustOpen(blockdev.Options{Size: c.Size, BlockSize: bs})
	t.Cleanup(func() {
		if s.v != nil {
			if err := s.v.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if t.Failed() {
			t.Logf("seed %#x", s.seed)
		}
	})
	return s
}

func (s *session) mustOpen(o blockdev.Options) blockdev.Volume {
	s.Helper()
	v, err := s.open(o)
	if err != nil {
		s.Fatalf("open: %v", err)
	}
	return v
}

// reopen closes the volume and opens it again.
func (s *session) reopen(o blockdev.Options) {
	s.Helper()
	if err := s.v.Close(); err != nil {
		s.Fatalf("close: %v", err)
	}
	s.v = nil
	o.BlockSize = int(s.bs)
	s.v = s.mustOpen(o)
}

// Client submits requests to a volume and waits for them. It is used by one goroutine.
type Client struct {
	V    blockdev.Volume
	r    blockdev.Request
	done chan struct{}
	bufs [1][]byte
}

// NewClient returns a client of v.
func NewClient(v blockdev.Volume) *Client {
	c := &Client{V: v, done: make(chan struct{}, 1)}
	c.r.Complete = func(*blockdev.Request) { c.done <- struct{}{} }
	return c
}

// Do runs r's operation and returns its error.
func (c *Client) Do(r blockdev.Request) error {
	c.r.Op, c.r.FUA, c.r.MayUnmap = r.Op, r.FUA, r.MayUnmap
	c.r.Offset, c.r.Length, c.r.Bufs, c.r.Loan, c.r.Err = r.Offset, r.Length, r.Bufs, r.Loan, nil
	c.V.Submit(&c.r)
	<-c.done
	return c.r.Err
}

// Read fills b from offset.
func (c *Client) Read(b []byte, offset int64) error {
	c.bufs[0] = b
	return c.Do(blockdev.Request{Op: blockdev.OpRead, Offset: offset, Length: int64(len(b)), Bufs: c.bufs[:]})
}

// Write puts b at offset.
func (c *Client) Write(b []byte, offset int64, fua bool) error {
	c.bufs[0] = b
	return c.Do(blockdev.Request{Op: blockdev.OpWrite, FUA: fua, Offset: offset, Length: int64(len(b)), Bufs: c.bufs[:]})
}

// Flush makes what was written durable.
func (c *Client) Flush() error { return c.Do(blockdev.Request{Op: blockdev.OpFlush}) }

// do runs a request that must succeed.
func (s *session) do(c *Client, r blockdev.Request) {
	s.Helper()
	if err := c.Do(r); err != nil {
		s.Fatalf("%s of %d at %d: %v", r.Op, r.Length, r.Offset, err)
	}
}

func (s *session) write(c *Client, b []byte, off int64) {
	s.Helper()
	if err := c.Write(b, off, false); err != nil {
		s.Fatalf("write of %d at %d: %v", len(b), off, err)
	}
}

// expect reads and compares; a volume that forgets must return zeroes.
func (s *session) expect(c *Client, off int64, want []byte) {
	s.Helper()
	got := bytes.Repeat([]byte{0xa5}, len(want)) // a read that fills nothing must be noticed
	if err := c.Read(got, off); err != nil {
		s.Fatalf("read of %d at %d: %v", len(want), off, err)
	}
	if s.c.Forgets {
		want = make([]byte, len(want))
	}
	s.compare(off, got, want)
}

func (s *session) compare(off int64, got, want []byte) {
	s.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			s.Fatalf("byte %d (%d of %d): got %#x, want %#x; seed %#x", off+int64(i), i, len(want), got[i], want[i], s.seed)
		}
	}
}

func (s *session) random(n int) []byte {
	b := make([]byte, n)
	s.rnd.Fill(b)
	return b
}

// random is a source of numbers and of bytes.
type random struct {
	*rand.Rand
	src *rand.ChaCha8
}

func newRandom(seed, stream uint64) random {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], stream)
	src := rand.NewChaCha8(key)
	return random{rand.New(src), src}
}

// Fill fills b.
func (r random) Fill(b []byte) { _, _ = r.src.Read(b) }

// wantKind checks that err is an OpError of the kind.
func wantKind(t testing.TB, what string, err, kind error) {
	t.Helper()
	var oe *blockdev.OpError
	if !errors.Is(err, kind) || !errors.As(err, &oe) {
		t.Errorf("%s: got %v (%T), want an OpError that is %q", what, err, err, kind)
	}
}
