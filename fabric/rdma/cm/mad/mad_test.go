package mad

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// sample is a line of testdata/linux.txt.
type sample struct {
	capture, frame, name string
	mad                  []byte
}

func linuxSamples(t testing.TB) []sample {
	t.Helper()
	f, err := os.Open("testdata/linux.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []sample
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		if len(w) != 4 || w[0] == "#" {
			continue
		}
		mad, err := hex.DecodeString(w[3])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sample{w[0], w[1], w[2], mad})
	}
	if len(all) != 33 {
		t.Fatalf("%d samples, want 33", len(all))
	}
	return all
}

func linuxSample(t testing.TB, capture, frame string) (uint64, Message) {
	t.Helper()
	for _, s := range linuxSamples(t) {
		if s.capture == capture && s.frame == frame {
			tid, m, err := Parse(s.mad)
			if err != nil {
				t.Fatal(err)
			}
			return tid, m
		}
	}
	t.Fatalf("no sample %s %s", capture, frame)
	return 0, nil
}

// Every MAD of Linux is parsed, and encoded again to the same bytes.
func TestLinuxMADsRoundTrip(t *testing.T) {
	for _, s := range linuxSamples(t) {
		tid, m, err := Parse(s.mad)
		if err != nil {
			t.Errorf("%s %s: %v", s.capture, s.frame, err)
			continue
		}
		if got := m.AttributeID().String(); got != s.name {
			t.Errorf("%s %s: %s, want %s", s.capture, s.frame, got, s.name)
		}
		if got := Append(nil, tid, m); !bytes.Equal(got, s.mad) {
			t.Errorf("%s %s %s:\n got %x\nwant %x", s.capture, s.frame, s.name, got, s.mad)
		}
	}
}

var (
	hostAddr   = netip.MustParseAddr("198.18.0.22")
	targetAddr = netip.MustParseAddr("198.18.0.12")
)

func TestLinuxREQ(t *testing.T) {
	tid, m := linuxSample(t, "6.12/rdma-02-connect", "76")
	want := REQ{
		LocalCommID: 0x12e8eef9, ServiceID: ServiceID(4420), LocalCAGUID: 0x505400fffe180016,
		LocalQPN: 0x13, ResponderResources: 128, RemoteResponse: 20, FlowControl: true,
		StartingPSN: 0xc1979b, LocalResponse: 20, RetryCount: 7, PKey: 0xffff,
		PathMTU: verbs.MTU1024, RNRRetryCount: 7, MaxCMRetries: 15,
		Primary: Path{
			LocalLID: 0xffff, RemoteLID: 0xffff,
			LocalGID: verbs.GIDFrom(hostAddr), RemoteGID: verbs.GIDFrom(targetAddr),
			FlowLabel: 0x53666, HopLimit: 64, ACKTimeout: 17,
		},
	}
	// NVMe/RDMA: record format 0, queue 1, 32 receives, send queue of 31 (0-based), controller 1.
	b := PrivateHeader{0xae9e, hostAddr, targetAddr}.Bytes()
	copy(want.PrivateData[:], append(b, 0, 0, 1, 0, 32, 0, 31, 0, 1, 0))
	if tid != 0x2f9eee812 {
		t.Errorf("transaction ID %#x", tid)
	}
	if got := *m.(*REQ); got != want {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if _, m := linuxSample(t, "6.12-mtu9000/rdma-02-connect", "1"); m.(*REQ).PathMTU != verbs.MTU4096 {
		t.Errorf("path MTU %d at MTU 9000", m.(*REQ).PathMTU)
	}
}

func TestLinuxREP(t *testing.T) {
	tid, m := linuxSample(t, "6.12/rdma-02-connect", "2")
	want := REP{
		CommIDs: CommIDs{0x4cf0712e, 0x11e8eef9}, LocalQPN: 0x12, StartingPSN: 0xe4bb03,
		InitiatorDepth: 128, TargetACKDelay: 15, FlowControl: true, RNRRetryCount: 7,
		LocalCAGUID: 0x505400fffe18000c,
	}
	want.PrivateData[2] = 32 // crqsize
	if tid != 0x2f9eee811 {
		t.Errorf("transaction ID %#x", tid)
	}
	if got := *m.(*REP); got != want {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestLinuxOthers(t *testing.T) {
	ids := CommIDs{0x14e8eef9, 0x49f0712e}
	for _, c := range []struct {
		capture, frame string
		tid            uint64
		want           Message
	}{
		{"6.12/rdma-02-connect", "3", 0x2f9eee811, &RTU{CommIDs: CommIDs{0x11e8eef9, 0x4cf0712e}}},
		{"6.12/rdma-15-disconnect", "23", 0x2f9eee814, &DREQ{CommIDs: ids, RemoteQPN: 0x15}},
		{"6.12/rdma-15-disconnect", "24", 0x2f9eee814, &DREP{CommIDs: ids.Reversed()}},
		{"6.12/rdma-18-bad-port", "2", 0x2f9eee818, &REJ{
			CommIDs: CommIDs{0, 0x18e8eef9}, Message: AnswersREQ, Reason: verbs.RejectInvalidServiceID,
		}},
	} {
		tid, got := linuxSample(t, c.capture, c.frame)
		if tid != c.tid || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s: TID %#x %+v\nwant %#x %+v", c.capture, c.frame, tid, got, c.tid, c.want)
		}
	}
}

// The position of each field, byte by byte: IBTA 12.6. It is read from where it is written.
func TestFieldOffsets(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Message
		off  int // after the header
		want []byte
	}{
		{"REQ vendor", &REQ{VendorID: 0x010203}, 4, []byte{0, 1, 2, 3}},
		{"REQ options", &REQ{Options: 0x01020304}, 20 - HeaderSize, []byte{1, 2, 3, 4}},
		{"REQ Q_Key", &REQ{LocalQKey: 0x01020304}, 28, []byte{1, 2, 3, 4}},
		{"REQ EECNs", &REQ{LocalEECN: 0x010203, RemoteEECN: 0x040506}, 36, []byte{1, 2, 3, 0, 4, 5, 6, 0}},
		{"REQ transport", &REQ{RemoteResponse: 31, TransportType: 2}, 43, []byte{0xfc}},
		{"REQ retry count", &REQ{LocalResponse: 1, RetryCount: 7}, 47, []byte{0x0f}},
		{"REQ MTU", &REQ{PathMTU: 5, RDCExists: true, RNRRetryCount: 3}, 50, []byte{0x5b}},
		{"REQ CM retries", &REQ{MaxCMRetries: 15, SRQ: true, ExtendedTransport: 1}, 51, []byte{0xf9}},
		{"REQ rate", &REQ{Primary: Path{PacketRate: 0x3f, TrafficClass: 7}}, 88, []byte{0, 0, 0, 0x3f, 7}},
		{"REQ SL", &REQ{Primary: Path{SL: 15, SubnetLocal: true, ACKTimeout: 31}}, 94, []byte{0xf8, 0xf8}},
		{"REQ alternate", &REQ{Alternate: Path{LocalLID: 0x0102}}, 96, []byte{1, 2}},
		{"REQ alternate SAP", &REQ{Alternate: Path{ACKTimeout: 1}, AlternateSAP: true}, 139, []byte{0x0c}},
		{"REQ private data", &REQ{PrivateData: [REQPrivateSize]byte{1, 2}}, 139, []byte{0, 1, 2}},
		{"REP Q_Key", &REP{LocalQKey: 0x01020304}, 8, []byte{1, 2, 3, 4}},
		{"REP vendor", &REP{VendorID: 0x010203, LocalQPN: 0x111111, LocalEECN: 0x222222, StartingPSN: 0x333333}, 12,
			[]byte{0x11, 0x11, 0x11, 1, 0x22, 0x22, 0x22, 2, 0x33, 0x33, 0x33, 3}},
		{"REP options", &REP{Options: 0x01020304}, 20 - HeaderSize, []byte{1, 2, 3, 4}},
		{"REP flags", &REP{TargetACKDelay: 16, FailoverAccepted: 2, RNRRetryCount: 5, SRQ: true}, 26, []byte{0x84, 0xb0}},
		{"REP depths", &REP{ResponderResources: 1, InitiatorDepth: 2}, 24, []byte{1, 2}},
		{"RTU", &RTU{CommIDs{0x01020304, 0x05060708}, [RTUPrivateSize]byte{9}}, 0, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"MRA", &MRA{CommIDs{0, 1}, AnswersREP, 24, [MRAPrivateSize]byte{9}}, 7, []byte{1, 0x40, 0xc0, 9}},
		{"REJ", &REJ{Message: AnswersOther, InfoLength: 8, Reason: 0x0102}, 8, []byte{0x80, 0x10, 1, 2}},
		{"REJ information", &REJ{ARI: [ARISize]byte{71: 1}, PrivateData: [REJPrivateSize]byte{2}}, 83, []byte{1, 2}},
		{"REJ GUID", timeoutREJ(0x0102030405060708), 9, []byte{0x10, 0, 4, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"DREQ", &DREQ{CommIDs{}, 0x010203, [DREQPrivateSize]byte{4}}, 8, []byte{1, 2, 3, 0, 4}},
		{"DREP", &DREP{CommIDs{}, [DREPPrivateSize]byte{9}}, 8, []byte{9}},
		{"LAP", &LAP{CommIDs{0, 1}, [bodySize - 8]byte{2}}, 7, []byte{1, 2}},
		{"APR", &APR{CommIDs{0, 1}, 2, 3, [bodySize - 10]byte{4}}, 7, []byte{1, 2, 3, 4}},
		{"SIDR_REQ", &SIDRREQ{0x01020304, 0x0506, 0x0708090a0b0c0d0e, [SIDRREQPrivateSize]byte{15}}, 0,
			[]byte{1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
		{"SIDR_REP", &SIDRREP{RequestID: 1, Status: 2, InfoLength: 3, QPN: 0x040506, ServiceID: 7, QKey: 8}, 3,
			[]byte{1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8}},
		{"SIDR_REP information", &SIDRREP{Info: [72]byte{71: 1}, PrivateData: [SIDRREPPrivateSize]byte{2}}, 95, []byte{1, 2}},
	} {
		mad := Append(nil, 0, c.m)
		if got := mad[HeaderSize+c.off:][:len(c.want)]; !bytes.Equal(got, c.want) {
			t.Errorf("%s: % x, want % x", c.name, got, c.want)
		}
		if _, got, err := Parse(mad); err != nil || !reflect.DeepEqual(got, c.m) {
			t.Errorf("%s: %+v became %+v, %v", c.name, c.m, got, err)
		}
	}
}

// timeoutREJ returns the REJ of a sender that has given up.
func timeoutREJ(guid uint64) *REJ {
	m := &REJ{Reason: verbs.RejectTimeout}
	m.SetGUID(guid)
	return m
}

// The receiver's ID that a datagram names, by message: in IBTA 12.6 it follows the sender's.
func TestRemoteID(t *testing.T) {
	ids := CommIDs{Local: 0x01020304, Remote: 0x05060708}
	for _, m := range []Message{
		&MRA{CommIDs: ids}, &REJ{CommIDs: ids}, &REP{CommIDs: ids}, &RTU{CommIDs: ids}, &DREQ{CommIDs: ids}, &DREP{CommIDs: ids},
		&LAP{CommIDs: ids}, &APR{CommIDs: ids},
	} {
		if got := RemoteID(Append(nil, 1, m)); got != ids.Remote {
			t.Errorf("%v: %#x, want %#x", m.AttributeID(), got, ids.Remote)
		}
	}
	for _, a := range []AttributeID{AttrREQ, AttrSIDRREQ, AttrSIDRREP} {
		b := Append(nil, 1, newMessage(a))
		for i := HeaderSize; i < Size; i++ {
			b[i] = 0xff
		}
		if got := RemoteID(b); got != 0 {
			t.Errorf("%v, which names none: %#x", a, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := Append(nil, 1, &RTU{})
	change := func(off int, v byte) []byte {
		b := bytes.Clone(good)
		b[off] = v
		return b
	}
	for name, b := range map[string][]byte{
		"255 bytes, want 256": good[:255],
		"257 bytes, want 256": append(bytes.Clone(good), 0),
		"BaseVersion":         change(0, 2),
		"MgmtClass":           change(1, 3),
		"ClassVersion":        change(2, 1),
		"Method":              change(3, 0x81),
		"unknown attribute":   change(17, 0x1b),
	} {
		_, _, err := Parse(b)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzzing.New(tf)
	for _, s := range linuxSamples(f) {
		f.Add(s.mad)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for a := firstAttr; a <= lastAttr; a++ {
		b := Append(nil, 1, newMessage(a))
		for i := HeaderSize; i < Size; i++ {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tid, m, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		again := Append(nil, tid, m)
		tid2, m2, err := Parse(again)
		if err != nil || tid2 != tid || !reflect.DeepEqual(m, m2) {
			t.Fatalf("%v: %+v became %+v", err, m, m2)
		}
	})
}

func TestPrivateHeader(t *testing.T) {
	for _, c := range []struct{ src, dst, hex string }{
		{"198.18.0.22", "198.18.0.12",
			"00401234" + "000000000000000000000000c6120016" + "000000000000000000000000c612000c"},
		{"2001:db8::1", "::1",
			"00601234" + "20010db8000000000000000000000001" + "00000000000000000000000000000001"},
	} {
		h := PrivateHeader{0x1234, netip.MustParseAddr(c.src), netip.MustParseAddr(c.dst)}
		b := h.Bytes()
		if got := hex.EncodeToString(b); got != c.hex {
			t.Errorf("%s: %s, want %s", c.src, got, c.hex)
		}
		if got, err := ParsePrivateHeader(b); err != nil || got != h {
			t.Errorf("%s: %+v %v", c.src, got, err)
		}
	}
	b := PrivateHeader{1, hostAddr, targetAddr}.Bytes()
	for name, bad := range map[string][]byte{
		"35 bytes":    b[:35],
		"CMA version": append([]byte{1}, b[1:]...),
		"IP version":  append([]byte{0, 0x50}, b[2:]...),
	} {
		if _, err := ParsePrivateHeader(bad); !errors.Is(err, ErrPrivateHeader) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParsePrivateHeader(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(PrivateHeader{1, hostAddr, targetAddr}.Bytes())
	f.Add(PrivateHeader{1, netip.IPv6Loopback(), netip.IPv6Loopback()}.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParsePrivateHeader(b)
		if err != nil {
			return
		}
		if again, err := ParsePrivateHeader(h.Bytes()); err != nil || again != h {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func TestServiceID(t *testing.T) {
	if got := ServiceID(4420); got != 0x0000000001061144 {
		t.Errorf("%#x", got)
	}
	for _, id := range []uint64{0x0111_1144, 0x1_0000_0000_0106_1144 >> 1, 0} {
		if _, ok := ServicePort(id); ok {
			t.Errorf("%#x taken for RDMA_PS_TCP", id)
		}
	}
}
