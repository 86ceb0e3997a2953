package main

import (
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestTimestampMeaning: a timestamp is a time only if a host has set it; otherwise it counts from a reset (NVMe base 2.1,
// figure 396).
func TestTimestampMeaning(t *testing.T) {
	at := uint64(time.Date(2024, 8, 5, 12, 0, 0, 0, time.UTC).UnixMilli())
	for want, ts := range map[string]nvme.Timestamp{
		"2024-08-05T12:00:00.000Z":                                             {Millis: at, Origin: 1},
		"not set: 1m1.5s since a reset":                                        {Millis: 61500},
		"2024-08-05T12:00:00.000Z, without times in which it may have stopped": {Millis: at, Origin: 1, Synch: true},
	} {
		if said := featureMeaning(nvme.FeatTimestamp, 0, ts.AppendTo(nil)); said != want {
			t.Errorf("%+v: %q, want %q", ts, said, want)
		}
	}
}
