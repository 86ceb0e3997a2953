package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/internal/hangtest"
	"github.com/nvme-anywhere/nvmeof/internal/samples"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ofLinux holds captures of Linux's rdma_rxe, which are described there.
const ofLinux = "../../fabric/rdma/roce/wire/testdata/linux-6.12"

// memory is a capture file in memory.
type memory struct {
	bytes.Buffer
	closed bool
}

func (m *memory) Close() error {
	m.closed = true
	return nil
}

func newCapture(t *testing.T) (*File, *memory) {
	t.Helper()
	m := new(memory)
	f, err := newFile(m, "memory", "test")
	if err != nil {
		t.Fatal(err)
	}
	return f, m
}

// frames closes f and reads what it wrote.
func frames(t *testing.T, f *File, m *memory) (got []gopacket.Packet, r *pcapgo.NgReader) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !m.closed {
		t.Error("the file is not closed")
	}
	r, err := pcapgo.NewNgReader(&m.Buffer, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return got, r
		} else if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
		p.Metadata().CaptureInfo = ci
		if e := p.ErrorLayer(); e != nil {
			t.Errorf("frame %d: %v", len(got), e.Error())
		}
		got = append(got, p)
	}
}

func endpoint(t *testing.T, n *simnet.Network, addr string, c simnet.Config) *simnet.Endpoint {
	t.Helper()
	e, err := n.Listen(netip.MustParseAddrPort(addr), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func recvAll(t *testing.T, c udp.Conn) {
	t.Helper()
	rx := make([]udp.Received, udp.RecvBatch)
	for {
		n, err := c.TryRecv(rx)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// roceTrain makes packets of equal size with ICRCs that are valid for their positions in a train.
func roceTrain(src, dst netip.AddrPort, count, size int) udp.Train {
	flow := wire.NewFlow(src, dst)
	tr := udp.Train{Dst: dst, TrafficClass: 2}
	for i := range count {
		p := wire.Packet{
			BTH:     wire.BTH{Opcode: wire.RCSendMiddle, PKey: wire.DefaultPKey, DestQP: 0x11, PSN: wire.PSN(i)},
			Payload: bytes.Repeat([]byte{byte(i)}, size),
		}
		if !tr.Append(p.Append(nil, flow, uint16(i))) {
			panic("train too long")
		}
	}
	return tr
}

// TestRoCE captures trains at both ends of a flow, with and without coalescing.
func TestRoCE(t *testing.T) {
	for name, c := range map[string]struct {
		src, dst string
		coalesce bool
	}{
		"IPv4":           {"192.0.2.1:4791", "192.0.2.2:4791", false},
		"IPv4 coalesced": {"192.0.2.1:4791", "192.0.2.2:4791", true},
		"IPv6":           {"[2001:db8::1]:4791", "[2001:db8::2]:4791", true},
	} {
		t.Run(name, func(t *testing.T) {
			n := simnet.New(1)
			a := endpoint(t, n, c.src, simnet.Config{})
			b := endpoint(t, n, c.dst, simnet.Config{Coalesce: c.coalesce})
			fa, ma := newCapture(t)
			fb, mb := newCapture(t)
			ca, cb := fa.Conn(a), fb.Conn(b)
			before := time.Now()
			trains := []udp.Train{
				roceTrain(a.LocalAddr(), b.LocalAddr(), 5, 1024),
				roceTrain(a.LocalAddr(), b.LocalAddr(), 1, 16),
			}
			if k, err := ca.Send(trains); k != 2 || err != nil {
				t.Fatal(k, err)
			}
			recvAll(t, cb)
			sent, _ := frames(t, fa, ma)
			received, r := frames(t, fb, mb)
			if len(sent) != 6 || len(received) != 6 {
				t.Fatalf("%d frames sent, %d received, want 6", len(sent), len(received))
			}
			for i := range sent {
				if !bytes.Equal(sent[i].Data(), received[i].Data()) {
					t.Errorf("frame %d differs between the ends:\n%x\n%x", i, sent[i].Data(), received[i].Data())
				}
				checkRoCE(t, sent[i], a.LocalAddr(), b.LocalAddr(), uint16(i%5))
				if when := sent[i].Metadata().Timestamp; when.Before(before.Truncate(0)) || when.After(time.Now()) {
					t.Errorf("frame %d has time %v", i, when)
				}
			}
			if s := r.SectionInfo(); s.Application != "test" {
				t.Errorf("section: %+v", s)
			}
		})
	}
}

// checkRoCE checks headers, checksums and ICRC of a frame.
func checkRoCE(t *testing.T, p gopacket.Packet, src, dst netip.AddrPort, id uint16) {
	t.Helper()
	var hasID uint16
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		hasID = ip.Id
		header := p.Data()[14:34]
		if fold(sum(0, header)) != 0xffff {
			t.Errorf("IPv4 header checksum of %x is wrong", header)
		}
		if ip.TOS != 2 || ip.TTL != 64 || ip.Flags != layers.IPv4DontFragment || hasID != id {
			t.Errorf("IPv4 header: %+v, want Identification %d", ip, id)
		}
	case *layers.IPv6:
		if ip.TrafficClass != 2 || ip.HopLimit != 64 {
			t.Errorf("IPv6 header: %+v", ip)
		}
	default:
		t.Fatalf("network layer %T", ip)
	}
	u, ok := p.TransportLayer().(*layers.UDP)
	if !ok {
		t.Fatalf("transport layer %T", p.TransportLayer())
	}
	checkSums(t, p)
	if src.Addr().Is6() && u.Checksum == 0 {
		t.Error("no UDP checksum over IPv6")
	}
	flow := wire.NewFlow(src, dst)
	if v, _ := flow.Verify(u.Payload, hasID); v != wire.Exact {
		t.Errorf("ICRC with the Identification in the file: %v", v)
	}
}

// checkSums checks the checksum of UDP or TCP.
func checkSums(t *testing.T, p gopacket.Packet) {
	t.Helper()
	layer, ok := p.TransportLayer().(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	})
	if !ok {
		t.Fatalf("transport layer %T", p.TransportLayer())
	}
	if err := layer.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
		t.Fatal(err)
	}
	if err, mismatches := p.VerifyChecksums(); err != nil || len(mismatches) != 0 {
		t.Errorf("checksums: %v, %v", err, mismatches)
	}
}

// TestRecoversIdentification sends the packets of captured frames again. The capture at the receiving end must equal
// the original from the IP header on, including the Identification, which the socket doesn't show.
func TestRecoversIdentification(t *testing.T) {
	for _, name := range []string{"rdma-01-discover.pcap", "rping.pcap", "rdma-09e-compare-fail.pcap"} {
		t.Run(name, func(t *testing.T) {
			n := simnet.New(1)
			ends := map[netip.AddrPort]udp.Conn{}
			f, m := newCapture(t)
			at := func(a netip.AddrPort) udp.Conn {
				if ends[a] == nil {
					e := endpoint(t, n, a.String(), simnet.Config{})
					ends[a] = e
					if a.Port() == wire.Port {
						ends[a] = f.Conn(e)
					}
				}
				return ends[a]
			}
			want := readRoCE(t, filepath.Join(ofLinux, name))
			for _, frame := range want {
				ip := frame[14:]
				src := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), binary.BigEndian.Uint16(ip[20:]))
				dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), wire.Port)
				payload := ip[28:]
				to := at(dst)
				if _, err := at(src).Send([]udp.Train{{
					Dst: dst, Parts: [][]byte{payload}, Bytes: len(payload), SegmentSize: len(payload),
				}}); err != nil {
					t.Fatal(err)
				}
				recvAll(t, to)
			}
			got, _ := frames(t, f, m)
			if len(got) != len(want) {
				t.Fatalf("%d frames, want %d", len(got), len(want))
			}
			for i := range got {
				if a, b := got[i].Data()[14:], want[i][14:]; !bytes.Equal(a, b) {
					t.Errorf("frame %d is\n%x, was\n%x", i, a, b)
				}
			}
		})
	}
}

// readRoCE returns the RoCEv2 frames of a classic pcap file.
func readRoCE(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	for b := range samples.Frames(t, path) {
		if len(b) > 42 && b[12] == 8 && b[13] == 0 && b[23] == protoUDP && binary.BigEndian.Uint16(b[36:]) == wire.Port {
			all = append(all, b)
		}
	}
	return all
}

// TestBadTrains sends trains that a socket refuses: they must neither end up in the file nor damage it.
func TestBadTrains(t *testing.T) {
	n := simnet.New(1)
	a, b := endpoint(t, n, "192.0.2.1:4791", simnet.Config{}), endpoint(t, n, "192.0.2.2:4791", simnet.Config{})
	f, m := newCapture(t)
	c := f.Conn(a)
	good := roceTrain(a.LocalAddr(), b.LocalAddr(), 2, 64)
	short := good
	short.Bytes += 1000
	for name, tr := range map[string]udp.Train{
		"no address":     {Parts: good.Parts, Bytes: good.Bytes, SegmentSize: good.SegmentSize},
		"other family":   {Dst: netip.MustParseAddrPort("[2001:db8::1]:1"), Parts: good.Parts, Bytes: good.Bytes, SegmentSize: good.SegmentSize},
		"too long":       {Dst: good.Dst, Parts: [][]byte{make([]byte, 70000)}, Bytes: 70000, SegmentSize: 1400},
		"fewer in Parts": short,
	} {
		if _, err := c.Send([]udp.Train{tr}); !errors.Is(err, udp.ErrTrain) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Send([]udp.Train{good}); err != nil {
		t.Fatal(err)
	}
	got, _ := frames(t, f, m)
	if len(got) < 2 {
		t.Fatalf("%d frames", len(got))
	}
	for i, p := range got[len(got)-2:] {
		checkRoCE(t, p, a.LocalAddr(), b.LocalAddr(), uint16(i))
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	f, err := Create(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := Create(path, "test"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an existing file: %v", err)
	}
	if _, err := Create(filepath.Join(path, "y"), "test"); err == nil {
		t.Error("a path through a file works")
	}
	if _, err := Create(t.TempDir(), "test"); err == nil {
		t.Error("a directory can be written")
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) < 28 || binary.LittleEndian.Uint32(data) != 0x0a0d0d0a {
		t.Errorf("file begins with %x, %v", data[:min(len(data), 28)], err)
	}
}

// TestMode: what is captured, and may lie in a volume, is its owner's alone, whatever the umask allows.
func TestMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	before := syscall.Umask(0)
	f, err := Create(path, "test")
	syscall.Umask(before)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if i, err := os.Stat(path); err != nil || i.Mode() != 0o600 {
		t.Errorf("mode %v (%v), want %v", i.Mode(), err, fs.FileMode(0o600))
	}
}

func TestFull(t *testing.T) {
	f, err := Create("/dev/full", "test")
	if err == nil {
		if _, told := soon.Receive(f.Done()); !told {
			t.Error("not done though nothing can be written")
		}
		err = f.Close()
	}
	if err == nil || err.Error() != "capture: write /dev/full: no space left on device" {
		t.Errorf("%v", err)
	}
}

// TestNamedPipeUnread: a pipe that nobody reads, yet or ever, delays nobody for longer than a moment.
func TestNamedPipeUnread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no named pipes here: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		f, err := Create(path, "test") // without waiting for a reader
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); !errors.Is(err, errNoReader) {
			t.Errorf("closed with %v", err)
		}
	})
	if f, err := Create(filepath.Join(path, "x"), "test"); err == nil {
		_ = f.Close()
		t.Error("a path through a pipe")
	}
}

// TestNamedPipe shows that a reader of a pipe gets frames while the capture goes on.
func TestNamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no named pipes here: %v", err)
	}
	first := make(chan int, 1)
	rest := make(chan error, 1)
	go func() {
		p, err := os.Open(path)
		if err != nil {
			rest <- err
			return
		}
		defer p.Close()
		r, err := pcapgo.NewNgReader(p, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			rest <- err
			return
		}
		b, _, err := r.ReadPacketData()
		first <- len(b)
		for err == nil {
			_, _, err = r.ReadPacketData()
		}
		rest <- err
	}()
	f, err := Create(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	n := simnet.New(1)
	a := endpoint(t, n, "192.0.2.1:4791", simnet.Config{})
	if _, err := f.Conn(a).Send([]udp.Train{roceTrain(a.LocalAddr(), netip.MustParseAddrPort("192.0.2.2:4791"), 1, 16)}); err != nil {
		t.Fatal(err)
	}
	if got, want := <-first, 14+28+12+16+4; got != want {
		t.Errorf("frame of %d bytes, want %d", got, want)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-rest; !errors.Is(err, io.EOF) {
		t.Errorf("the reader ended with %v", err)
	}
}

// stuck is a file whose writes block, or fail, as closing it may.
type stuck struct {
	memory
	gate     chan struct{}
	err      error
	closeErr error
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.gate
	if s.err != nil {
		return 0, s.err
	}
	return s.memory.Write(b)
}

func (s *stuck) Close() error { return errors.Join(s.memory.Close(), s.closeErr) }

func TestOverflowIsCounted(t *testing.T) {
	s := &stuck{gate: make(chan struct{})}
	f, err := newFile(s, "slow disk", "test")
	if err != nil {
		t.Fatal(err)
	}
	n := simnet.New(1)
	a := endpoint(t, n, "192.0.2.1:4791", simnet.Config{})
	c := f.Conn(a)
	tr := roceTrain(a.LocalAddr(), netip.MustParseAddrPort("192.0.2.2:4791"), 10, 1024)
	const sends = 3 * maxQueued / (10 * 1040)
	for range sends {
		if _, err := c.Send([]udp.Train{tr}); err != nil {
			t.Fatal(err)
		}
	}
	kept := (sends*10 - int(f.Dropped())) * 1040
	if kept < maxQueued*9/10 || kept > 2*maxQueued {
		t.Errorf("%d of %d datagrams dropped, %d bytes kept", f.Dropped(), sends*10, kept)
	}
	close(s.gate)
	got, r := frames(t, f, &s.memory)
	stats, err := r.Interface(0)
	if err != nil {
		t.Fatal(err)
	}
	if n := stats.Statistics; n.PacketsReceived != sends*10 || n.PacketsDropped != f.Dropped() || len(got) != sends*10-int(f.Dropped()) {
		t.Errorf("the file says %d datagrams, %d of them dropped, and has %d; %d of %d were dropped",
			n.PacketsReceived, n.PacketsDropped, len(got), f.Dropped(), sends*10)
	}
}

// slow is a file each of whose writes takes a time.
type slow struct {
	memory
	each time.Duration
}

func (s *slow) Write(b []byte) (int, error) {
	time.Sleep(s.each)
	return s.memory.Write(b)
}

// TestCloseWaits: Close waits for a slow file until everything is written, but not for a file system that doesn't answer.
func TestCloseWaits(t *testing.T) {
	for _, c := range []struct {
		each time.Duration
		want error
	}{
		{closeTimeout - time.Second, nil},
		{time.Hour, errHangs},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{each: c.each}
			f, err := newFile(s, "slow disk", "test")
			if err != nil {
				t.Fatal(err)
			}
			a := endpoint(t, simnet.New(1), "192.0.2.1:4791", simnet.Config{})
			const sends, size = 100, 10240
			for range sends {
				if _, err := f.Conn(a).Send([]udp.Train{roceTrain(a.LocalAddr(), netip.MustParseAddrPort("192.0.2.2:4791"), 10, size/10)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); !errors.Is(err, c.want) {
				t.Errorf("writes take %v: closed with %v, want %v", c.each, err, c.want)
			}
			if c.want == nil && s.Len() < sends*size {
				t.Errorf("%d bytes were written", s.Len())
			}
			<-f.Done()
		})
	}
}

func TestWriteErrorEndsCapture(t *testing.T) {
	s := &stuck{gate: make(chan struct{}), err: syscall.ENOSPC}
	close(s.gate)
	f, err := newFile(s, "full disk", "test")
	if err != nil {
		t.Fatal(err)
	}
	<-f.done
	a := endpoint(t, simnet.New(1), "192.0.2.1:4791", simnet.Config{})
	if _, err := f.Conn(a).Send([]udp.Train{roceTrain(a.LocalAddr(), netip.MustParseAddrPort("192.0.2.2:4791"), 1, 16)}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
}

// TestCloseFails: what a file system says only when a file is closed, as NFS does, is an error, too.
func TestCloseFails(t *testing.T) {
	s := &stuck{gate: make(chan struct{}), closeErr: syscall.EDQUOT}
	close(s.gate)
	f, err := newFile(s, "remote disk", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("Close: %v", err)
	}
}

// probe notes whether writing it, or closing it, would hold up what a ring has under way on the caller's thread.
type probe struct{ used, held int }

func (p *probe) Write(b []byte) (int, error) { return len(b), p.Close() }

func (p *probe) Close() error {
	p.used++
	if hangtest.Busy() {
		p.held++
	}
	return nil
}

// TestApart: a disk that hangs holds up nothing but the capture.
func TestApart(t *testing.T) {
	hangtest.BusyThread(t)
	p := new(probe)
	f := &File{out: p, queue: newQueue(), start: time.Now(), done: make(chan struct{})}
	w, err := newWriter(counted{f}, "test")
	if err != nil {
		t.Fatal(err)
	}
	f.queue.close()
	if f.run(w); f.err != nil || p.used < 2 || p.held > 0 {
		t.Errorf("the file was used %d times, %d of them on a thread with a request, %v", p.used, p.held, f.err)
	}
}

func BenchmarkSend(b *testing.B) {
	f, err := newFile(struct {
		io.Writer
		io.Closer
	}{io.Discard, io.NopCloser(nil)}, "discard", "bench")
	if err != nil {
		b.Fatal(err)
	}
	a := netip.MustParseAddrPort("192.0.2.1:4791")
	tr := []udp.Train{roceTrain(a, netip.MustParseAddrPort("192.0.2.2:4791"), 15, 4096)}
	c := f.Conn(null{local: a})
	b.SetBytes(int64(tr[0].Bytes))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Send(tr); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(f.Dropped())/float64(b.N), "drops/op")
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// null is a Conn that discards what is sent.
type null struct {
	udp.Conn
	local netip.AddrPort
}

func (n null) LocalAddr() netip.AddrPort            { return n.local }
func (n null) Send(trains []udp.Train) (int, error) { return len(trains), nil }
