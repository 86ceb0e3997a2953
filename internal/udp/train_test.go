package udp

import (
	"net/netip"
	"testing"
)

func TestTrainFits(t *testing.T) {
	parts := func(n int) [][]byte { return make([][]byte, n) }
	for _, tc := range []struct {
		name     string
		train    Train
		n, parts int
		want     bool
	}{
		{"first", Train{}, 4140, 3, true},
		{"first, empty datagram", Train{}, 0, 0, false},
		{"first, longest", Train{}, MaxTrainBytes, 1, true},
		{"first, too long", Train{}, MaxTrainBytes + 1, 1, false},
		{"first, too many parts", Train{}, 4140, MaxTrainParts + 1, false},
		{"equal", Train{SegmentSize: 100, Bytes: 100}, 100, 1, true},
		{"shorter", Train{SegmentSize: 100, Bytes: 100}, 1, 1, true},
		{"longer", Train{SegmentSize: 100, Bytes: 100}, 101, 1, false},
		{"empty", Train{SegmentSize: 100, Bytes: 100}, 0, 0, false},
		{"after a shorter one", Train{SegmentSize: 100, Bytes: 150}, 50, 1, false},
		{"last segment", Train{SegmentSize: 10, Bytes: 10 * (MaxTrainSegments - 1)}, 10, 1, true},
		{"too many segments", Train{SegmentSize: 10, Bytes: 10 * MaxTrainSegments}, 10, 1, false},
		{"last bytes", Train{SegmentSize: 5000, Bytes: 60000}, 5000, 1, true},
		{"too many bytes", Train{SegmentSize: 5000, Bytes: 65000}, 1, 1, false},
		{"last part", Train{SegmentSize: 100, Bytes: 100, Parts: parts(MaxTrainParts - 1)}, 1, 1, true},
		{"too many parts", Train{SegmentSize: 100, Bytes: 100, Parts: parts(MaxTrainParts - 1)}, 1, 2, false},
	} {
		if got := tc.train.Fits(tc.n, tc.parts); got != tc.want {
			t.Errorf("%s: Fits(%d, %d) = %v", tc.name, tc.n, tc.parts, got)
		}
	}
}

func TestTrainAppendCounts(t *testing.T) {
	var train Train
	train.Dst = netip.MustParseAddrPort("127.0.0.1:4791")
	datagram := make([]byte, 4140)
	for i := range 15 {
		if train.Datagrams() != i {
			t.Fatalf("%d datagrams after %d", train.Datagrams(), i)
		}
		if !train.Append(datagram[:40], datagram[40:4136], datagram[4136:]) {
			t.Fatalf("datagram %d refused", i)
		}
	}
	if train.Append(datagram) {
		t.Error("65,000 bytes exceeded")
	}
	if !train.Append(datagram[:36]) || train.Append(datagram[:36]) {
		t.Error("want one shorter datagram as the last")
	}
	if train.Datagrams() != 16 || train.Bytes != 15*4140+36 || len(train.Parts) != 46 {
		t.Errorf("%d datagrams, %d bytes, %d parts", train.Datagrams(), train.Bytes, len(train.Parts))
	}
	train.Reset()
	if train.Datagrams() != 0 || train.Bytes != 0 || train.Dst.IsValid() || cap(train.Parts) < 46 || train.Parts[:1][0] != nil {
		t.Errorf("after Reset: %+v", train)
	}
	if allocs := testing.AllocsPerRun(100, func() {
		train.Reset()
		for train.Append(datagram[:40], datagram[40:]) {
		}
	}); allocs != 0 {
		t.Errorf("%v allocations per train", allocs)
	}
}
