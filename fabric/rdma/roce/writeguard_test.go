package roce

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// TestWriteIsGuarded: each packet of a WRITE is checked against the range that the first one named, and against the
// key, which may have become invalid since. What isn't within is refused, and changes nothing (IBTA 9.7.4.1.6, 9.9.3).
func TestWriteIsGuarded(t *testing.T) {
	rawTest("beyond the length", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteFirst, 100, 256, 300))
		r.expect("ACK 100 msn 0")
		r.send(r.packet(wire.RCWriteMiddle, 101, 256))
		r.expect("NAK invalid request 101 msn 0")
		if string(r.dev.buf[256:512]) != string(make([]byte, 256)) {
			t.Error("data is placed beyond the range")
		}
	})
	rawTest("a key that dies", t, func(t *testing.T, r *rawPeer) {
		r.send(r.write(wire.RCWriteFirst, 100, 256, 300))
		r.expect("ACK 100 msn 0")
		check(t, r.dev.mr.Dereg())
		r.send(r.packet(wire.RCWriteLast, 101, 44))
		r.expect("NAK remote access error 101 msn 0")
		if string(r.dev.buf[256:300]) != string(make([]byte, 44)) {
			t.Error("data is placed by a dead key")
		}
	})
}
