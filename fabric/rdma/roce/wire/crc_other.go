//go:build !amd64

package wire

// hasFold reports whether the next data is prefetched while a sum is computed.
const hasFold = false

// crcUpdate returns the state after p.
func crcUpdate(state uint32, p, _ []byte) uint32 { return crcPortable(state, p) }

// crcCopy is crcUpdate but also copies p to to, which is as long.
func crcCopy(state uint32, to, p, _ []byte) uint32 {
	copy(to, p)
	return crcPortable(state, p)
}

// canStream reports whether copies of summed data are written past the caches.
const canStream = false

// Fence has nothing to do if copies go through the caches.
func Fence() {}

// crcPacket returns the state after p, which begins with a BTH.
func crcPacket(state uint32, p, _ []byte) uint32 { return crcPacketPortable(state, p) }
