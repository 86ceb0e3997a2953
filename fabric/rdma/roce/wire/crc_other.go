//go:build !amd64

package wire

// hasFold says whether what is next is fetched while something is summed.
const hasFold = false

// crcUpdate is the state after p.
func crcUpdate(state uint32, p, _ []byte) uint32 { return crcPortable(state, p) }

// crcPacket is the state after p, which begins with a BTH.
func crcPacket(state uint32, p, _ []byte) uint32 { return crcPacketPortable(state, p) }
