package tcp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// recorder is a pduHandler that records its calls.
type recorder struct {
	expected []uint16 // CIDs
	r        *reader
	pieces   int // into how many pieces of memory data is placed; 0 drops it
	places   [][]byte
	log      []byte
	buf      [16 << 10]byte // the reader's
	memory   []byte         // for data
}

func (c *recorder) batch()               {}
func (c *recorder) flush() (bool, error) { return false, nil }
func (c *recorder) interrupted() error   { return nil }

func (c *recorder) header(h pdu.Header, b []byte) error {
	c.note(h.Type.String(), b)
	c.places = c.places[:0]
	if n := h.DataLen(); n > 0 && n < 1<<20 && c.pieces > 0 {
		if len(c.memory) < n {
			c.memory = make([]byte, n)
		}
		for i := range c.pieces {
			from, to := n*i/c.pieces, n*(i+1)/c.pieces
			p := c.memory[from:to:to]
			c.places = append(c.places, p)
			c.r.place(p)
		}
	}
	return nil
}

func (c *recorder) data(_ pdu.Header, ok bool) error {
	c.note(strconv.FormatBool(ok), c.places...)
	return nil
}

// note writes a line: what happened, and bytes.
func (c *recorder) note(what string, b ...[]byte) {
	c.log = append(append(c.log, what...), ' ')
	for _, b := range b {
		c.log = hex.AppendEncode(c.log, b)
	}
	c.log = append(c.log, '\n')
}

// feed gives a stream to a reader, in pieces as long as size says, the way recvmsg would: into the
// places that prepare names.
func feed(ru pdu.Rules, stream []byte, pieces int, size func() int) (string, error) {
	c := &recorder{}
	err := c.feed(ru, stream, pieces, size)
	return string(c.log), err
}

// feed begins anew.
func (c *recorder) feed(ru pdu.Rules, stream []byte, pieces int, size func() int) error {
	c.pieces, c.log = pieces, c.log[:0]
	clear(c.buf[:])
	c.expected = nil
	c.r = &reader{h: c, rules: ru, buf: c.buf[:], expect: func(cmd *nvme.Command) { c.expected = append(c.expected, cmd.CID()) }}
	for len(stream) > 0 {
		n := fill(c.r, stream, size())
		stream = stream[n:]
		c.r.took(n)
		if err := c.r.consume(); err != nil {
			return err
		}
	}
	return nil
}

// testStream returns PDUs of a host with all their parts, small and large.
func testStream(digests pdu.Digests) []byte {
	p := &raw{digests: digests}
	var s []byte
	for i, n := range []int{0, 512, 4096, 0, 17 << 10, 100} {
		s = append(s, p.capsule(identify(uint16(i)), randomBytes(uint64(n), n))...)
		s = append(s, p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData}, CCCID: uint16(i)}, randomBytes(9, 3*n+4))...)
	}
	return append(s, pdu.TermReq{Type: pdu.TypeH2CTermReq, FES: 1, Offence: make([]byte, 100)}.Append(nil)...)
}

func rulesFor(d pdu.Digests) pdu.Rules {
	return pdu.Rules{Self: pdu.Controller, Ready: true, Format: pdu.Format{Digests: d}}
}

// TestReaderChunks cuts a stream in many ways: what arrives must not depend on it.
func TestReaderChunks(t *testing.T) {
	for _, digests := range []pdu.Digests{0, pdu.DigestHeader | pdu.DigestData} {
		stream := testStream(digests)
		want, err := feed(rulesFor(digests), stream, 1, func() int { return 1 << 20 })
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count([]byte(want), []byte("\n")); n != 12+1+10 || bytes.Contains([]byte(want), []byte("false")) {
			t.Fatalf("%d events", n)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for _, most := range []int{1, 7, 100, 1000, 5000, 30000} {
			for _, pieces := range []int{1, 2, 70} {
				got, err := feed(rulesFor(digests), stream, pieces, func() int { return 1 + rnd.IntN(most) })
				if err != nil || got != want {
					t.Errorf("digests %v, up to %d bytes at a time into %d pieces: %v, or other events", digests, most, pieces, err)
				}
			}
		}
		if got, err := feed(rulesFor(digests), stream, 0, func() int { return 999 }); err != nil || bytes.Contains([]byte(got), []byte("false")) {
			t.Errorf("digests %v, dropped: %v", digests, err)
		}
	}
}

// padded returns a PDU without header digest that has more bytes between its header and its data.
func padded(b []byte, pad int) []byte {
	at := int(b[offPDO])
	b = slices.Insert(slices.Clone(b), at, bytes.Repeat([]byte{0xaa}, pad)...)
	b[offPDO] += byte(pad)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

// TestReaderPad: data begins where PDO says, however the padding before it, which no digest covers, arrives.
func TestReaderPad(t *testing.T) {
	data := randomBytes(1, 3000)
	for _, digests := range []pdu.Digests{0, pdu.DigestData} {
		p := &raw{digests: digests}
		first, second := padded(p.capsule(identify(1), data), 56), padded(p.capsule(identify(2), data[:8]), 4)
		for _, size := range []int{1, 7, 73, 100, 1 << 20} {
			for _, pieces := range []int{1, 3} {
				log, err := feed(rulesFor(digests), append(first, second...), pieces, func() int { return size })
				for _, want := range [][]byte{data, data[:8]} {
					if err != nil || !strings.Contains(log, fmt.Sprintf("\ntrue %x\n", want)) {
						t.Errorf("digests %v, %d bytes at a time into %d pieces: %v, or other data", digests, size, pieces, err)
					}
				}
			}
		}
	}
}

// TestReaderExpects: commands that arrive together are each announced, up to the first other PDU; a single one isn't.
func TestReaderExpects(t *testing.T) {
	p := &raw{}
	var stream []byte
	for i, n := range []int{0, 0, 512, 0} {
		stream = append(stream, p.capsule(identify(uint16(i)), make([]byte, n))...)
	}
	data := p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData}, CCCID: 2}, make([]byte, 72))
	lying := slices.Clone(stream[:2*72])
	binary.LittleEndian.PutUint32(lying[4:], 1<<32-1)
	short := slices.Clone(stream[:2*72])
	short[4] = 8
	for _, c := range []struct {
		what   string
		stream []byte
		want   []uint16
	}{
		{"four, one with data", stream, []uint16{0, 1, 2, 3}},
		{"one", stream[:72], nil},
		{"one and a half", stream[:100], nil},
		{"two and a half", stream[:2*72+50], []uint16{0, 1}},
		{"data between them", slices.Concat(stream[:72], data, stream[72:2*72]), []uint16{0}},
		{"data first", slices.Concat(data, stream[:2*72]), nil},
		{"a length beyond the end", lying, []uint16{0}},
		{"a length that is none", short, nil},
	} {
		r := &recorder{}
		_ = r.feed(rulesFor(0), c.stream, 1, func() int { return len(c.stream) })
		if !slices.Equal(r.expected, c.want) {
			t.Errorf("%s: expects %v, want %v", c.what, r.expected, c.want)
		}
	}
}

// FuzzReader feeds the reader an arbitrary stream, whole and in pieces: the events are the same, and nothing panics.
func FuzzReader(tf *testing.F) {
	f := fuzzing.New(tf)
	for _, d := range []pdu.Digests{0, pdu.DigestHeader, pdu.DigestData, pdu.DigestHeader | pdu.DigestData} {
		f.Add(testStream(d)[:2000], uint8(d), uint16(13))
	}
	var whole, parts recorder // kept, since many executions may share a process
	f.Fuzz(func(t *testing.T, stream []byte, digests uint8, cut uint16) {
		ru := rulesFor(pdu.Digests(digests))
		err1 := whole.feed(ru, stream, 1, func() int { return 1 << 20 })
		err2 := parts.feed(ru, stream, 2, func() int { return int(cut%500) + 1 })
		if !bytes.Equal(whole.log, parts.log) || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Fatalf("%v\n%v\n%s\n%s", err1, err2, whole.log, parts.log)
		}
	})
}
