package target

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Namespace is one namespace of a subsystem.
type Namespace struct {
	sub        *Subsystem
	nsid       uint32
	volume     blockdev.Volume
	memory     blockdev.Memory     // volume, if it is one
	prefetcher blockdev.Prefetcher // volume, if it is one
	lender     blockdev.Lender     // likewise
	info       blockdev.Info
	shift      uint          // log2 of the block size
	align      uintptr       // alignment of buffers that the volume needs, less one
	blocks     atomic.Uint64 // size
	unwatch    func()        // of the size; nil if the size can't change
	release    sync.Once     // to let go of the volume once

	anaGroup    uint32
	uuid, nguid [16]byte
	eui64       [8]byte

	passing     bool        // its UUID is that of an instance of its volume
	created     bool        // by a host
	private     bool        // attached to one controller at a time
	fixed       bool        // write protection can't be lifted
	protecting  sync.Mutex  // one change of protected at a time
	protected   atomic.Bool // writes are refused
	mediaErrors atomic.Uint64
	discards    atomic.Uint64 // ranges that the volume was told to discard
	zeroes      atomic.Uint64 // ranges that it was told to fill with zeroes

	state   atomic.Uint32 // nsRemoved …: commands just go on if it is 0
	gate    gate
	resv    reservations
	bad     badBlocks
	losses  losses
	going   chan struct{} // closed when removal begins
	drained chan struct{} // signaled, with room for one, when a shard of a removed namespace is idle
	shards  [nsShards]nsShard
}

// nsShards is how many sets of counters a namespace has, so that queues on different processors don't write to the same
// memory.
const nsShards = 8

type nsShard struct {
	users atomic.Int64 // requests that use the namespace
	io    ioCounters
	_     [64]byte
}

func newNamespace(sub *Subsystem, nsid uint32, c *NamespaceConfig) *Namespace {
	info := c.Volume.Info()
	ns := &Namespace{
		sub: sub, nsid: nsid, volume: c.Volume, info: info,
		shift:    uint(bits.TrailingZeros(uint(info.BlockSize))),
		align:    uintptr(max(info.Align, 1) - 1),
		anaGroup: max(c.ANAGroup, 1),
		uuid:     c.UUID, nguid: c.NGUID, eui64: c.EUI64,
		fixed:   info.ReadOnly || c.ReadOnly,
		created: c.created, private: c.private,
		going:   make(chan struct{}),
		drained: make(chan struct{}, 1),
	}
	ns.memory, _ = c.Volume.(blockdev.Memory)
	ns.prefetcher, _ = c.Volume.(blockdev.Prefetcher)
	ns.lender, _ = c.Volume.(blockdev.Lender)
	ns.blocks.Store(uint64(info.Size) >> ns.shift)
	ns.protected.Store(ns.fixed)
	if ns.uuid == [16]byte{} {
		uuid, lasts := DeriveUUID(sub.nqn, nsid, &info)
		ns.uuid, ns.passing = uuid, !lasts
	}
	return ns
}

// store keeps what must outlive the target; nil if there is nothing to keep it in, or nothing could ever find it again.
func (ns *Namespace) store() Store {
	if ns.passing {
		return nil
	}
	return ns.sub.t.store
}

// DeriveUUID returns the UUID of a namespace that is given none, and whether it still has that UUID after a restart.
func DeriveUUID(nqn string, nsid uint32, volume *blockdev.Info) (uuid [16]byte, lasts bool) {
	return deriveUUID(nqn, nsid, volumeName(volume)), volume.Instance == ""
}

// deriveUUID makes a UUID (RFC 9562, version 8) that stays the same across restarts. Another volume under the same NSID
// has another UUID: hosts would take it for the same disk, and go on with what they have cached of the first. A volume
// in memory is another one after a restart. So it is on another target, which may have the same NQN, as the default
// one: a host that is connected to both would use them as paths to one disk.
func deriveUUID(nqn string, nsid uint32, volume string) (u [16]byte) {
	sum := sha256.Sum256(append(binary.LittleEndian.AppendUint32([]byte("namespace\x00"+nqn+"\x00"), nsid), volume...))
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// volumeName returns what tells a volume from others: its kind, and its absolute path or, if its content is lost when it
// is closed, its instance. It is empty for a volume that has neither.
func volumeName(info *blockdev.Info) string {
	switch {
	case info.Instance != "":
		return info.Kind + ":" + info.Instance
	case info.Path == "":
		return ""
	}
	path, err := filepath.Abs(info.Path)
	if err != nil { // there is no working directory
		path = info.Path
	}
	return info.Kind + ":" + path
}

// NSID returns the namespace's identifier.
func (ns *Namespace) NSID() uint32 { return ns.nsid }

// get counts a user of the namespace in a shard; it returns false if the namespace was removed. Unlike
// Request.namespace, it ignores an owner that has the namespace alone.
func (ns *Namespace) get(shard int) bool {
	ns.shards[shard].users.Add(1)
	if ns.state.Load()&nsRemoved != 0 {
		ns.put(shard)
		return false
	}
	return true
}

func (ns *Namespace) put(shard int) {
	if ns.shards[shard].users.Add(-1) == 0 && ns.state.Load()&(nsRemoved|nsClosed) != 0 {
		ns.quiet(true)
		ns.tellDrained()
	}
}

// tellDrained wakes remove, if it waits.
func (ns *Namespace) tellDrained() {
	if ns.state.Load()&nsRemoved != 0 {
		select {
		case ns.drained <- struct{}{}:
		default:
		}
	}
}

// refuseAll begins to remove the namespace: from now on it lets no request in.
func (ns *Namespace) refuseAll() {
	if ns.state.Or(nsRemoved)&nsRemoved == 0 {
		close(ns.going)
	}
}

// remove lets no more requests in, ends those that wait, waits for those that use the namespace, including views of its
// memory, and lets go of the volume. A host and the operator may remove it at the same time; then both wait.
func (ns *Namespace) remove() {
	ns.refuseAll()
	ns.letIn()
	ns.turnAway()
	for ns.users() != 0 || ns.excluded() {
		<-ns.drained
	}
	ns.tellDrained() // for the other remove
	ns.letGo()
}

// letGo makes the volume and the target forget each other, once. Nothing uses the namespace any more.
func (ns *Namespace) letGo() {
	ns.release.Do(func() {
		if ns.unwatch != nil {
			ns.unwatch()
		}
		ns.sub.t.buffers.remove(ns.volume)
		ns.sub.departed.left(ns)
	})
}

func (ns *Namespace) users() (n int64) {
	for i := range ns.shards {
		n += ns.shards[i].users.Load()
	}
	return n
}

// stats returns the sum of the counters of all shards.
func (ns *Namespace) stats() (s IOStats) {
	for i := range ns.shards {
		ns.shards[i].io.addTo(&s)
	}
	return s
}

// watchSize makes the volume report new sizes until the namespace is removed.
func (ns *Namespace) watchSize() {
	v, ok := ns.volume.(blockdev.Resizer)
	if !ok {
		return
	}
	ns.unwatch = v.OnResize(ns.resized)
	was := int64(-1)
	for size := v.Info().Size; size != was; size = v.Info().Size { // it may just have changed, and may do so meanwhile
		ns.blocks.Store(uint64(size) >> ns.shift)
		was = size
	}
}

// resized is called with a new size of the volume, and tells the hosts.
func (ns *Namespace) resized(size int64) {
	if ns.state.Load()&nsRemoved != 0 || size < 0 {
		return
	}
	ns.blocks.Store(uint64(size) >> ns.shift)
	ns.sub.namespaceChanged(ns.nsid, nil)
}
