package roce

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Rules that only Linux's rxe needs, as requester: seen with losses on its side.

// TestReadAnswerIsWhole: an answer to a READ that has begun to leave isn't interrupted when the READ is repeated, and
// nothing comes between its packets.
func TestReadAnswerIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{})
		const packets = answerQuota + 8 // more than leave at once
		const n = packets * 256
		batch := []*wire.Packet{r.write(wire.RCWriteOnly, 100, 100, 100), r.read(101, 0, n)}
		for len(batch) < udp.RecvBatch { // the rest comes when the first answers have left
			p := r.packet(wire.RCSendOnly, 0, 0)
			p.DestQP++
			batch = append(batch, p)
		}
		batch = append(batch, r.read(101, 0, n), r.write(wire.RCWriteOnly, 100, 100, 100))
		r.send(batch...)
		r.answers()
		whole, next := 0, wire.PSN(0)
		for i := range r.got {
			p := &r.got[i]
			read := p.Opcode.Kind() == wire.KindReadResponse
			if next != 0 && (!read || p.PSN != next || p.Opcode.Starts()) {
				t.Fatalf("%s where the answer should go on at %d", describe(p), next)
			}
			switch {
			case !read:
			case p.Opcode.Ends():
				whole, next = whole+1, 0
			default:
				next = p.PSN.Next()
			}
		}
		if whole == 0 || next != 0 {
			t.Errorf("%d whole answers, then one up to %d", whole, next)
		}
	})
}

// TestReadIsNotHeld: of the packets that came ahead of a lost one only SENDs and WRITEs are executed when that one
// arrives; a READ is answered when the peer repeats it.
func TestReadIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRaw(t, pairConfig{})
		first, second := r.write(wire.RCWriteOnly, 100, 100, 100), r.write(wire.RCWriteOnly, 101, 100, 100)
		r.send(second, r.read(102, 0, 300), r.write(wire.RCWriteOnly, 104, 100, 100))
		r.expect("NAK PSN sequence error 100 msn 0")
		r.send(first)
		r.expect("ACK 101 msn 2")
		r.send(second, r.read(102, 0, 300))
		r.expect("ACK 101 msn 2", "RC_RDMA_READ_RESPONSE_FIRST 102 +256", "RC_RDMA_READ_RESPONSE_LAST 103 +44", "ACK 104 msn 4")
	})
}
