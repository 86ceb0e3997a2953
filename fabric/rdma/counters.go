package rdma

import "sync/atomic"

// Counters counts what the connections of a Listener or a Transport did. The values only grow, except for Connections.
type Counters struct {
	Connections      atomic.Int64 // open now
	Accepted         atomic.Uint64
	Rejected         atomic.Uint64
	Limited          atomic.Uint64 // target: those of them that a limit on connections, or on the memory of their buffers, rejected
	Failed           atomic.Uint64 // ended by an error
	Capsules         atomic.Uint64 // commands received (target) or sent (host)
	InCapsule        atomic.Uint64 // those with data in the capsule
	Reads            atomic.Uint64 // RDMA READ work requests
	Writes           atomic.Uint64 // RDMA WRITE work requests
	Invalidates      atomic.Uint64 // responses that invalidate the host's key remotely
	MemoryWaits      atomic.Uint64 // commands that had to wait for data memory
	GaveWay          atomic.Uint64 // target: connections that had to make room for others
	Probes           atomic.Uint64 // target: probes of silent hosts
	Registered       atomic.Uint64 // host: requests whose memory had to be registered for them alone
	LocalInvalidates atomic.Uint64 // host: keys that the target left for the host to invalidate
}
