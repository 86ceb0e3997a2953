package tests

import (
	"fmt"
	"testing"
	"time"
)

// TestEngines: with several RNICs at an address on either side, all of them carry connections, no packet reaches the
// wrong one, and data is the same.
func TestEngines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		target, host int
		flags        []string // of both
	}{
		{"of the target", 4, 1, nil},
		{"of the host", 1, 3, nil},
		{"of both", 2, 4, nil},
		{"without ICRC", 4, 2, []string{"--no-local-icrc"}},
		{"without offloads", 3, 3, []string{"--plain-udp"}},
		{"with packets lost", 2, 2, []string{"--fault", "loss=0.5%"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := freeAddr(t)
			tgt := startTargetAt(t, addr, append(c.flags, "--volume", "mem:64MiB", "--engines", fmt.Sprint(c.target),
				"--metrics", addr.String()+":"+metricsPort)...)
			for _, bs := range []string{"4k", "256k"} {
				tgt.must(t, time.Minute, "rdma", "bench", append(c.flags, "--engines", fmt.Sprint(c.host), "--nr-io-queues", "8", "--numjobs", "8", "--rw", "write",
					"--bs", bs, "--size", "32m", "--iodepth", "8", "--verify", "crc32c")...)
			}
			s := tgt.scrape(t)
			for i := range c.target {
				device := addr.String()
				if c.target > 1 {
					device += fmt.Sprintf("/%d", i)
				}
				if n := s[`nvmeof_rnic_rx_send_requests_total{device="`+device+`"}`]; n < 1000 {
					t.Errorf("%s has executed %v SENDs", device, n)
				}
			}
			for _, lost := range []string{"nvmeof_rnic_rx_stray_total", "nvmeof_udp_received_shared_bytes_total"} {
				if n := s.sum(t, lost); n != 0 {
					t.Errorf("%s: %v", lost, n)
				}
			}
			tgt.stop(t)
		})
	}
}

// TestEnginesRefused: a second target doesn't get an address that several RNICs share, even with several of its own.
func TestEnginesRefused(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	tgt := startTargetAt(t, addr, "--volume", "null:16MiB", "--engines", "2")
	for _, engines := range []string{"1", "2"} {
		check(t, "nvmetgt", []mistake{{
			args("serve --volume null:16MiB --listen rdma://" + addr.String() + ":4421 --engines " + engines),
			exitFailure, []string{addr.String() + ":4791", "port in use", "nvmetgt", "another address"},
		}})
	}
	tgt.stop(t)
}
