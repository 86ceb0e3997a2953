//go:build !amd64

package wire

// hasFold says whether what is next is fetched while something is summed.
const hasFold = false

// crcUpdate is the state after p.
func crcUpdate(state uint32, p, _ []byte) uint32 { return crcPortable(state, p) }

// crcCopy is crcUpdate that copies p to to, which is as long.
func crcCopy(state uint32, to, p, _ []byte) uint32 {
	copy(to, p)
	return crcPortable(state, p)
}

// canStream says whether copies of what is summed go past the caches.
const canStream = false

// Fence has nothing to do where copies go through the caches.
func Fence() {}

// crcPacket is the state after p, which begins with a BTH.
func crcPacket(state uint32, p, _ []byte) uint32 { return crcPacketPortable(state, p) }
