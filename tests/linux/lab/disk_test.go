package lab

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// nbdClient is as much of a client as the test needs.
type nbdClient struct {
	t    *testing.T
	conn net.Conn
}

func dialDisk(t *testing.T, d *Disk) *nbdClient {
	conn, err := net.Dial("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	c := &nbdClient{t, conn}
	c.expect("NBDMAGICIHAVEOPT\x00\x03")
	c.send("\x00\x00\x00\x03")
	c.send("IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00") // structured replies
	c.expect("\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x08\x80\x00\x00\x01\x00\x00\x00\x00")
	c.send("IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00") // go, no name, no questions
	c.expect("\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x2d")
	c.expect("\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00")
	return c
}

func (c *nbdClient) send(s string) {
	if _, err := io.WriteString(c.conn, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *nbdClient) expect(s string) {
	c.t.Helper()
	b := make([]byte, len(s))
	if _, err := io.ReadFull(c.conn, b); err != nil || string(b) != s {
		c.t.Fatalf("%x, %v; want %x", b, err, s)
	}
}

// do sends a request, and expects an answer with this code and these bytes.
func (c *nbdClient) do(flags, kind uint16, off uint64, n uint32, data string, code byte, want string) {
	c.t.Helper()
	b := binary.BigEndian.AppendUint32(nil, nbdRequest)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = append(b, "a cookie"...)
	b = binary.BigEndian.AppendUint64(b, off)
	b = binary.BigEndian.AppendUint32(b, n)
	c.send(string(b) + data)
	c.expect("\x67\x44\x66\x98\x00\x00\x00" + string(code) + "a cookie" + want)
}

// TestDisk: what was flushed, or written with FUA, is there after a power failure; of other writes, any sectors may be.
func TestDisk(t *testing.T) {
	d, err := NewDisk(t.TempDir(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	block := func(b byte, n int) string { return string(bytes.Repeat([]byte{b}, n)) }
	c := dialDisk(t, d)
	c.do(0, nbdWrite, 0, 1024, block('a', 1024), 0, "")
	c.do(0, nbdFlush, 0, 0, "", 0, "")
	c.do(0, nbdWrite, 0, 1024, block('b', 1024), 0, "")
	c.do(nbdFUA, nbdWrite, 2048, 512, block('c', 512), 0, "")
	c.do(0, nbdRead, 0, 2560, "", 0, block('b', 1024)+block(0, 1024)+block('c', 512))
	c.do(0, nbdRead, 4096, 512, "", nbdInvalid, "")
	c.do(0, nbdTrim, 0, 512, "", 0, "")
	d.Break(true)
	c.do(0, nbdRead, 0, 512, "", nbdIO, "")
	c.do(0, nbdWrite, 0, 512, block('x', 512), nbdIO, "")
	d.Break(false)
	c.conn.Close()
	found := map[string]bool{}
	before := d.medium
	for i := range uint64(50) {
		d.powerless(func() { d.medium = before })
		cached, err := d.PowerFail(rand.New(rand.NewPCG(1, i)))
		if err != nil || cached != 2 {
			t.Fatalf("%d sectors in the cache, want 2; %v", cached, err)
		}
		c := dialDisk(t, d)
		c.do(0, nbdRead, 1024, 1536, "", 0, block(0, 1024)+block('c', 512))
		var all []byte
		for s := range uint64(2) {
			b := make([]byte, sector)
			d.medium.ReadAt(b, int64(s*sector))
			if b[0] != 'a' && b[0] != 'b' || string(b) != block(b[0], sector) {
				t.Fatalf("sector %d holds %q", s, b)
			}
			all = append(all, b[0])
		}
		found[string(all)] = true
		c.conn.Close()
	}
	if len(found) != 4 {
		t.Errorf("after 50 power failures only %v", found)
	}
}
