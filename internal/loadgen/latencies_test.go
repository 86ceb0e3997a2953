package loadgen

import (
	"context"
	"testing"
	"time"
)

func TestLatencies(t *testing.T) {
	var l liveLatencies
	for ns, bucket := range map[int64]int{1: 0, 1023: 0, 1024: 1, 2047: 1, 2048: 2, int64(time.Hour): LatencyBuckets - 1} {
		var before, after Latencies
		l.addTo(&before)
		l.record(ns)
		l.addTo(&after)
		if after.Buckets[bucket] != before.Buckets[bucket]+1 || after.Nanos != before.Nanos+uint64(ns) {
			t.Errorf("%d ns isn't in bucket %d: %+v", ns, bucket, after)
		}
		if bucket < LatencyBuckets-1 && ns >= int64(LatencyBound(bucket)) || bucket > 0 && ns < int64(LatencyBound(bucket-1)) {
			t.Errorf("%d ns is outside of the bounds of bucket %d", ns, bucket)
		}
	}
}

// TestLatenciesOfRun checks that what is shown while a run is under way adds up.
func TestLatenciesOfRun(t *testing.T) {
	res, err := Run(context.Background(), &fakeDevice{}, spec("randrw"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for op, m := range res.Ops {
		var n uint64
		for _, c := range m.Latencies.Buckets {
			n += c
		}
		if n != m.IOs || m.Latency.TotalCount() != int64(n) || n > 0 && m.Latencies.Nanos == 0 {
			t.Errorf("%v: %d in the buckets, %d operations", Op(op), n, m.IOs)
		}
	}
}
