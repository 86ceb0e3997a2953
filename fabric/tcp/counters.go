package tcp

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
)

// DirectionCounters counts one direction of all connections of a Listener or a Transport.
type DirectionCounters struct {
	PDUs  [pdu.NumTypes]atomic.Uint64 // by pdu.Type
	Bytes atomic.Uint64               // on the connections, headers and digests included
	Data  atomic.Uint64               // of Bytes, those that are data
	// Direct counts the bytes of data that the kernel put straight into their place, bypassing the read buffer.
	Direct  atomic.Uint64
	Calls   atomic.Uint64 // system calls that sent or received something
	Blocked atomic.Uint64 // system calls that found the socket full, or empty
}

// Counters counts what happened on all connections of a Listener or a Transport. The counts only
// grow, except Connections.
type Counters struct {
	In, Out DirectionCounters

	Connections atomic.Int64  // open now
	Accepted    atomic.Uint64 // connections made
	Rejected    atomic.Uint64 // connections closed because of a limit, or before initialization was done
	Limited     atomic.Uint64 // those of them that a limit on connections closed

	HeaderDigestErrors atomic.Uint64
	DataDigestErrors   atomic.Uint64
	ProtocolErrors     atomic.Uint64 // header digest errors included
	ShortData          atomic.Uint64 // commands that succeeded without all of their data (host)
	MemoryWaits        atomic.Uint64 // commands that waited for data memory (target)
	Successes          atomic.Uint64 // responses, sent or received, that a SUCCESS flag replaced
}

// tally collects counts without atomics while a batch is worked on.
type tally struct {
	pdus    [pdu.NumTypes]uint32
	bytes   uint64
	data    uint64
	direct  uint64
	calls   uint64
	blocked uint64
}

// add moves the counts of a batch that was built.
func (t *tally) add(b *batch) {
	for i, n := range b.pdus {
		t.pdus[i] += n
	}
	t.data += uint64(b.data)
	b.pdus, b.data = [pdu.NumTypes]uint32{}, 0
}

// publish adds the counts to c and resets them.
func (t *tally) publish(c *DirectionCounters) {
	for i, n := range t.pdus {
		if n != 0 {
			c.PDUs[i].Add(uint64(n))
			t.pdus[i] = 0
		}
	}
	move(&c.Bytes, &t.bytes)
	move(&c.Data, &t.data)
	move(&c.Direct, &t.direct)
	move(&c.Calls, &t.calls)
	move(&c.Blocked, &t.blocked)
}

func move(to *atomic.Uint64, from *uint64) {
	if *from != 0 {
		to.Add(*from)
		*from = 0
	}
}
