package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/examples/internal/rctest"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// role returns the program with arguments.
func role(t *testing.T, args ...string) rctest.Role {
	t.Helper()
	return rctest.RoleOf(t, parse, run, args...)
}

func TestOperations(t *testing.T) {
	for _, c := range []struct {
		args           []string
		server, client string
	}{
		{[]string{"write"}, "1000 of 65536 bytes", "all acknowledged"},
		{[]string{"-size", "8", "-depth", "1", "-count", "50", "write"}, "50 of 8 bytes", "all acknowledged"},
		{[]string{"-size", "10001", "-depth", "128", "write"}, "written where it should", "all acknowledged"},
		{[]string{"-count", "100", "read"}, "as it was", "each brought the same data"},
		{[]string{"-count", "100", "send"}, "100 of 65536 bytes received", "all acknowledged"},
		{[]string{"-size", "2000", "-count", "200", "send"}, "200 of 2000 bytes received", "all acknowledged"},
		{[]string{"add"}, "the sums have grown by as many", "each found what"},
		{[]string{"swap"}, "only what compared equal", "each found what"},
	} {
		addr := rctest.Addr(t)
		server, client, e1, e2 := rctest.Run(t.Context(),
			role(t, append([]string{"-bind", addr}, c.args...)...), role(t, append(c.args, addr)...))
		if e1 != nil || e2 != nil {
			t.Fatalf("%v: server %v, client %v", c.args, e1, e2)
		}
		if !strings.Contains(server, c.server) || !strings.Contains(client, c.client) {
			t.Errorf("%v: server: %s client: %s", c.args, server, client)
		}
	}
}

// The text is from ib_atomic_bw 6.06 over rdma_rxe.
var (
	goldenText = "0000:0080:000014:9bf727:00000564:000055da02f87000:" +
		"00:00:00:00:00:00:00:00:00:00:ff:ff:c6:12:00:03:00000000:\x00"
	goldenKeys = keys{
		Peer:  rc.Peer{QPN: 0x14, PSN: 0x9bf727, GID: verbs.GIDFrom(netip.MustParseAddr("198.18.0.3"))},
		reads: 128, rkey: 0x564, addr: 0x55da02f87000,
	}
)

func TestKeys(t *testing.T) {
	const keysSize = len("0000:0000:000000:000000:00000000:0000000000000000:"+
		"00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00000000:") + 1
	if got, err := parseKeys([]byte(goldenText)); err != nil || got != goldenKeys {
		t.Errorf("%+v, %v", got, err)
	}
	if got := goldenKeys.text(); string(got) != goldenText || len(got) != keysSize {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{
		"", goldenText[:40], strings.Replace(goldenText, "c6", "x6", 1), strings.Replace(goldenText, "9bf727", "19bf727", 1),
		strings.NewReplacer("ff", "00", "c6", "00", ":12", ":00", "03", "00").Replace(goldenText),
	} {
		if _, err := parseKeys([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzKeys(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add([]byte(goldenText))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseKeys(b)
		if err != nil {
			return
		}
		if again, err := parseKeys(k.text()); err != nil || again != k {
			t.Errorf("%q: %+v, then %+v, %v", b, k, again, err)
		}
	})
}

// peer plays the other side's part in an exchange.
type peer struct {
	io.Reader
	bytes.Buffer
}

func (p *peer) Read(b []byte) (int, error) { return p.Reader.Read(b) }

func TestAgree(t *testing.T) {
	version := func(v string) []byte { return append([]byte(v), make([]byte, versionSize-len(v))...) }
	number := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	for _, c := range []struct {
		name string
		said [][]byte
		ok   bool
	}{
		{"perftest 6.06", [][]byte{version("6.06"), number(4096), number(64), []byte("3\x00")}, true},
		{"old", [][]byte{version("5.69"), number(4096), number(64), []byte("3\x00")}, false},
		{"no version", [][]byte{version("x"), number(4096), number(64), []byte("3\x00")}, false},
		{"large pages", [][]byte{version("6.06"), number(1 << 30), number(64), []byte("3\x00")}, false},
		{"large lines", [][]byte{version("6.06"), number(4096), number(1 << 20), []byte("3\x00")}, false},
		{"negative", [][]byte{version("6.06"), number(-1), number(-1), []byte("3\x00")}, true}, // ours are used
		{"no MTU", [][]byte{version("6.06"), number(4096), number(64), []byte("0\x00")}, false},
		{"short", [][]byte{version("6.06"), number(4096)}, false},
	} {
		x := &test{options: options{size: 1000}, wire: wire{&peer{Reader: bytes.NewReader(bytes.Join(c.said, nil))}, false}}
		mtu, err := x.agree(device{})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.ok && (mtu != verbs.MTU1024 || x.stride != 1024 || x.cycle != 4) {
			t.Errorf("%s: MTU %d, %+v", c.name, mtu, x.layout)
		}
	}
}

// device has nothing but attributes.
type device struct{ verbs.Device }

func (device) Attr() verbs.DeviceAttr { return verbs.DeviceAttr{ActiveMTU: verbs.MTU4096} }

// A server sees what should not have happened.
func TestInspect(t *testing.T) {
	for _, c := range []struct {
		op   string
		do   func(guard, target []byte)
		want string // of the error; "" for none
	}{
		{"write", func(_, b []byte) { clear(b[:5000]) }, ""},
		{"write", func(_, b []byte) { clear(b[:2000]) }, "only 2000 of 5000"},
		{"write", func(g, b []byte) { clear(b[:5000]); g[page-1] = 0 }, "beside"},
		{"read", func(_, _ []byte) {}, ""},
		{"read", func(_, b []byte) { b[77] = 0 }, "only to be read"},
		{"add", func(_, b []byte) { b[0] += 3; b[64] += 4 }, ""},
		{"add", func(_, b []byte) { b[0] += 3 }, "grew by 3 in 7"},
		{"swap", func(_, b []byte) {}, ""},
		{"swap", func(_, b []byte) { b[0] += 7 }, ""},
		{"swap", func(_, b []byte) { b[64] = 0 }, "nothing should have been swapped"},
	} {
		x := &test{options: options{op: operations[c.op], size: 5000}}
		if x.op.atomic {
			x.size = wordSize
		}
		x.area, x.line = page, cacheLine
		x.Resources = &rc.Resources{Buf: bytes.Repeat([]byte{before}, x.memory())}
		c.do(x.Buf[:page], x.Buf[x.target():])
		_, err := x.inspect(7)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.op, err, c.want)
		}
	}
}
