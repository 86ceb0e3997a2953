//go:build linux

package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

func TestListenErrors(t *testing.T) {
	held := listen(t, loop4, Config{})
	before := sockets(t)
	_, err := Listen(held.LocalAddr(), Config{})
	var op *OpError
	if !errors.Is(err, ErrInUse) || !errors.Is(err, unix.EADDRINUSE) || !errors.As(err, &op) || op.Addr != held.LocalAddr() {
		t.Errorf("port in use: %v", err)
	}
	if want := fmt.Sprintf("process %d", os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("%q doesn't name its owner, %q", err, want)
	}
	for _, tc := range []struct {
		addr string
		cfg  Config
		kind error
	}{
		{"192.0.2.1:4791", Config{}, ErrNotLocal},
		{"0.0.0.0:4791", Config{}, ErrNotLocal},
		{"[::]:4791", Config{}, ErrNotLocal},
		{"224.0.0.1:4791", Config{}, ErrNotLocal},
		{"[fe80::1%nosuchinterface]:4791", Config{}, ErrNotLocal},
		{"127.0.0.1:0", Config{RecvBuffer: -1}, nil},
		{"127.0.0.1:0", Config{RecvBuffer: maxBuffer + 1}, nil},
		{"127.0.0.1:0", Config{BusyPoll: -2}, nil},
		{"127.0.0.1:0", Config{Priority: -1}, nil},
		{"127.0.0.1:0", Config{Priority: maxPriority + 1}, nil},
	} {
		c, err := Listen(netip.MustParseAddrPort(tc.addr), tc.cfg)
		if err == nil {
			c.Close()
			t.Errorf("%s %+v: no error", tc.addr, tc.cfg)
		} else if tc.kind != nil && !errors.Is(err, tc.kind) {
			t.Errorf("%s %+v: %v, want %v", tc.addr, tc.cfg, err, tc.kind)
		} else if tc.kind != nil && !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s %+v: %v, without a remedy", tc.addr, tc.cfg, err)
		}
	}
	if n := sockets(t); n != before {
		t.Errorf("%d sockets are open, and %d were before", n, before)
	}
}

// sockets counts those of this process.
func sockets(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func TestFindOwner(t *testing.T) {
	table := `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  100: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18021 2 0000000000000000 0
  101: 00000000:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0000000000000000 0
  102: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 1000 0 555 2 0000000000000000 0
  103: nonsense
`
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // there each word of an address is the number as it is written
		table = strings.NewReplacer("0100007F", "7F000001", "01000000:12B7", "00000001:12B7").Replace(table)
	}
	for _, tc := range []struct {
		addr  string
		inode uint64
		at    string
		found bool
	}{
		{"127.0.0.1:4791", 18021, "127.0.0.1:4791", true},
		{"127.0.0.2:4791", 0, "", false},
		{"10.0.0.1:4792", 0, "0.0.0.0:4792", true}, // the kernel's, on every address
		{"[::1]:4791", 555, "[::1]:4791", true},
		{"127.0.0.1:53", 0, "", false},
	} {
		inode, at, found := findOwner(strings.NewReader(table), netip.MustParseAddrPort(tc.addr))
		if inode != tc.inode || found != tc.found || found && at.String() != tc.at {
			t.Errorf("%s: inode %d at %v, %v", tc.addr, inode, at, found)
		}
	}
}

func FuzzFindOwner(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add("1: 0100007F:12B7 0 0 0 0 0 0 0 7")
	f.Add("1: 0100007F00:12B7 0 0 0 0 0 0 0 7")
	f.Fuzz(func(_ *testing.T, table string) {
		findOwner(strings.NewReader(table), netip.MustParseAddrPort("127.0.0.1:4791"))
	})
}

// TestRefusedSegmentation has the kernel refuse: it doesn't segment for a socket without
// checksums.
func TestRefusedSegmentation(t *testing.T) {
	a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{})
	if !a.Segmentation() {
		t.Skip("the kernel has no UDP_SEGMENT")
	}
	in := receiveAll(t, b)
	if err := unix.SetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	one, two := trainOf(b.LocalAddr(), pattern(64, 1), 64), trainOf(b.LocalAddr(), pattern(100, 2), 50)
	n, err := a.Send([]Train{one, two, one})
	var errno unix.Errno // the kernel's reason
	if n != 1 || !errors.Is(err, ErrSegmentation) || !errors.As(err, &errno) || a.Segmentation() {
		t.Fatalf("Send took %d, %v; segmentation %v", n, err, a.Segmentation())
	}
	in.next(t)
	// Refused without asking the kernel again; what came before is sent.
	if n, err = a.Send([]Train{one, two}); n != 1 || !errors.Is(err, ErrSegmentation) {
		t.Fatalf("Send took %d, %v", n, err)
	}
	send(t, a, two)
	for range 3 {
		in.next(t)
	}
	if got := a.Counters().TxDatagrams.Load(); got != 4 {
		t.Errorf("%d datagrams counted, want 4", got)
	}
}

// TestRouteRefusesSegmentation: what the route to one peer refuses is refused for that peer alone, until it is tried
// again.
func TestRouteRefusesSegmentation(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	a, b, other := listen(t, loop4, Config{}), listen(t, loop4, Config{}), listen(t, loop4, Config{})
	if !a.Segmentation() {
		t.Skip("the kernel has no UDP_SEGMENT")
	}
	sandbox.Refuse(t, unix.SYS_SENDMMSG, unix.EIO)
	two := trainOf(b.LocalAddr(), pattern(100, 2), 50)
	refused := func(dst *conn, asked bool) {
		t.Helper()
		two.Dst = dst.LocalAddr()
		if n, err := a.Send([]Train{two}); n != 0 || !errors.Is(err, ErrSegmentation) || errors.Is(err, unix.EIO) != asked {
			t.Errorf("Send took %d, %v; the kernel is to be asked: %v", n, err, asked)
		}
	}
	refused(b, true)
	refused(b, false)
	if a.Segments(b.LocalAddr()) || !a.Segmentation() || !a.Segments(other.LocalAddr()) {
		t.Errorf("segmentation to the one: %v, at all: %v, to the other: %v",
			a.Segments(b.LocalAddr()), a.Segmentation(), a.Segments(other.LocalAddr()))
	}
	refused(other, true)
	if k := a.Counters(); k.TxRefusals.Load() != 2 || k.TxDrops.Load() != 0 {
		t.Errorf("%d refusals, %d dropped", k.TxRefusals.Load(), k.TxDrops.Load())
	}
}

// TestRefusals: a refusal counts for a while, and many leave no more behind than there is room for.
func TestRefusals(t *testing.T) {
	var r refusals
	to := func(i int) netip.AddrPort { return netip.AddrPortFrom(loop4, uint16(i)) }
	now := time.Now()
	r.add(to(1), now)
	r.add(to(2), now.Add(refusedFor/2))
	for _, c := range []struct {
		port int
		at   time.Duration
		want bool
	}{
		{1, 0, true}, {3, 0, false}, {1, refusedFor - 1, true}, {1, refusedFor, false}, {2, refusedFor, true},
		{3, refusedFor * 3 / 2, false}, // which lets go of the other one
	} {
		if got := r.has(to(c.port), now.Add(c.at)); got != c.want {
			t.Errorf("port %d after %v: refused %v, want %v", c.port, c.at, got, c.want)
		}
	}
	if r.some.Load() || len(r.until) != 0 {
		t.Errorf("%d are left", len(r.until))
	}
	for i := range maxRefused + 1 {
		r.add(to(i), now)
	}
	if n := len(r.until); n != 1 || !r.has(to(maxRefused), now) {
		t.Errorf("%d are remembered", n)
	}
}

func TestMalformedTrainsAreRefused(t *testing.T) {
	c := listen(t, loop4, Config{})
	dst := c.LocalAddr()
	p := func(n int) [][]byte { return [][]byte{make([]byte, n)} }
	good := Train{Dst: dst, Parts: p(10), Bytes: 10, SegmentSize: 10}
	for name, bad := range map[string]Train{
		"empty":             {Dst: dst},
		"too long":          {Dst: dst, Parts: p(MaxTrainBytes + 1), Bytes: MaxTrainBytes + 1, SegmentSize: 5000},
		"wrong sum":         {Dst: dst, Parts: p(10), Bytes: 11, SegmentSize: 11},
		"too many parts":    {Dst: dst, Parts: make([][]byte, MaxTrainParts+1), Bytes: 10, SegmentSize: 10},
		"far too many":      {Dst: dst, Parts: make([][]byte, sendParts+1), Bytes: 10, SegmentSize: 10},
		"too many segments": {Dst: dst, Parts: p(MaxTrainSegments + 1), Bytes: MaxTrainSegments + 1, SegmentSize: 1},
		"no destination":    {Parts: p(10), Bytes: 10, SegmentSize: 10},
		"no port":           {Dst: netip.AddrPortFrom(loop4, 0), Parts: p(10), Bytes: 10, SegmentSize: 10},
		"other family":      {Dst: netip.AddrPortFrom(loop6, 4791), Parts: p(10), Bytes: 10, SegmentSize: 10},
	} {
		n, err := c.Send([]Train{good, bad, good})
		if n != 1 || !errors.Is(err, ErrTrain) {
			t.Errorf("%s: Send took %d, %v", name, n, err)
		}
	}
	if got := c.Counters().TxDatagrams.Load(); got != 9 {
		t.Errorf("%d datagrams sent, want the 9 good ones", got)
	}
	if i := slices.IndexFunc(c.tx.iovs[:], func(v unix.Iovec) bool { return v.Base != nil }); i >= 0 {
		t.Errorf("piece %d is kept", i)
	}
}

// TestUnreachableIsCountedAndSkipped: from a loopback address nothing outside can be reached.
func TestUnreachableIsCountedAndSkipped(t *testing.T) {
	a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{})
	in := receiveAll(t, b)
	outside := netip.MustParseAddrPort("192.0.2.1:4791")
	n, err := a.Send([]Train{
		trainOf(outside, pattern(64, 1), 64),
		trainOf(outside, pattern(100, 1), 50),
		trainOf(b.LocalAddr(), pattern(64, 2), 64),
	})
	if n != 3 || err != nil {
		t.Fatalf("Send took %d, %v", n, err)
	}
	in.next(t)
	k := a.Counters()
	if k.TxDrops.Load() != 3 || k.TxDatagrams.Load() != 1 || k.TxWaits.Load() != 0 || !a.Segmentation() {
		t.Errorf("%d dropped after %d waits, %d sent, segmentation %v", k.TxDrops.Load(), k.TxWaits.Load(), k.TxDatagrams.Load(), a.Segmentation())
	}
}

func TestKernelDropsAreCounted(t *testing.T) {
	b := listen(t, loop4, Config{RecvBuffer: 4096})
	a := listen(t, loop4, Config{})
	one := []Train{trainOf(b.LocalAddr(), pattern(1000, 1), 1000)}
	const sent = 500
	for range sent {
		must(a.Send(one))
	}
	rx := make([]Received, RecvBatch)
	for must(b.TryRecv(rx)) > 0 {
	}
	// The total of drops travels with the next datagram.
	must(a.Send(one))
	must(b.Recv(rx))
	k := b.Counters()
	if k.RxKernelDrops.Load() == 0 || k.RxDatagrams.Load()+k.RxKernelDrops.Load() != sent+1 {
		t.Errorf("%d received, %d dropped, of %d", k.RxDatagrams.Load(), k.RxKernelDrops.Load(), sent+1)
	}
}

// TestTruncated: what was received in part is discarded and counted, and what was received with it isn't.
func TestTruncated(t *testing.T) {
	for _, flag := range []int32{unix.MSG_TRUNC, unix.MSG_CTRUNC} {
		a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{DisableCoalescing: true})
		for n := range 3 {
			send(t, a, trainOf(b.LocalAddr(), pattern(100+n, 1), 200))
		}
		if n, errno := b.rx.call(b.fd, 3, 0); n != 3 || errno != 0 {
			t.Fatal(n, errno)
		}
		b.rx.hdrs[1].hdr.Flags |= flag
		rx := make([]Received, 3)
		n := b.harvest(rx, 3)
		if n != 2 || !bytes.Equal(rx[0].Buf, pattern(100, 1)) || !bytes.Equal(rx[1].Buf, pattern(102, 1)) {
			t.Errorf("%#x: %d are received, of %d and %d bytes", flag, n, len(rx[0].Buf), len(rx[1].Buf))
		}
		if k := b.Counters(); k.RxTruncated.Load() != 1 || k.RxDatagrams.Load() != 2 || k.RxBytes.Load() != 202 || k.RxSyscalls.Load() != 1 {
			t.Errorf("%#x: %d truncated, %d datagrams of %d bytes by %d calls", flag,
				k.RxTruncated.Load(), k.RxDatagrams.Load(), k.RxBytes.Load(), k.RxSyscalls.Load())
		}
	}
}

func TestRecvBufferHoldsWhatItReports(t *testing.T) {
	b := listen(t, loop4, Config{})
	a := listen(t, loop4, Config{})
	const size = 15 * 4140
	train := trainOf(b.LocalAddr(), pattern(size, 1), 4140)
	trains := min(b.RecvBuffer(), 1<<20) / size
	for range trains {
		send(t, a, train)
	}
	rx := make([]Received, RecvBatch)
	got := 0
	for n := must(b.TryRecv(rx)); n > 0; n = must(b.TryRecv(rx)) {
		for _, r := range rx[:n] {
			got += len(r.Buf)
		}
	}
	if got != trains*size {
		t.Errorf("%d bytes of %d held, buffer %d", got, trains*size, b.RecvBuffer())
	}
}

func TestBusyPollReceivesAndThenBlocks(t *testing.T) {
	b := listen(t, loop4, Config{BusyPoll: time.Millisecond})
	in := receiveAll(t, b)
	a := listen(t, loop4, Config{})
	for i := range 10 {
		send(t, a, trainOf(b.LocalAddr(), pattern(64, uint64(i)), 64))
		in.next(t)
	}
}
