package wire

// SelectiveAck is our own answer to a request that arrived ahead of a lost one, between two software RNICs that
// recognize each other (package roce). Its opcode is one of those that the specification leaves to manufacturers (IBTA
// table 38: 11000000 to 11111111), its headers are those of an ACKNOWLEDGE with the NAK for a sequence error, and its
// payload is an Arrived.
const SelectiveAck Opcode = 0xc0

// Arrived is the payload of a SelectiveAck: bit i%8 of byte i/8 says that the request packet i after the PSN of the
// header has arrived, although one before it has not.
type Arrived []byte

// Len returns the number of packets that a has a bit for.
func (a Arrived) Len() int { return 8 * len(a) }

// Has reports whether the packet i after the first has arrived.
func (a Arrived) Has(i int) bool {
	return i>>3 < len(a) && a[i>>3]>>(i&7)&1 != 0
}

// Set records the arrival of packet i, for which a must have a bit.
func (a Arrived) Set(i int) { a[i>>3] |= 1 << (i & 7) }
