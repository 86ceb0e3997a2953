package pdu

// MaxAlignment is the largest value of HPDA and CPDA (0-based dwords): data aligned to 128 bytes.
const MaxAlignment = 31

// MaxHead is the most bytes that may precede the data of a PDU, header digest and padding included:
// the 76 bytes of a CapsuleCmd, aligned to the largest alignment below that, take twice 72.
const MaxHead = 144

// Digests is the DGST field of the initialization PDUs.
type Digests uint8

// Bits of Digests.
const (
	DigestHeader Digests = 1 << 0
	DigestData   Digests = 1 << 1

	allDigests = DigestHeader | DigestData
)

// String returns the names of the digests.
func (d Digests) String() string {
	switch d & allDigests {
	case DigestHeader:
		return "header"
	case DigestData:
		return "data"
	case allDigests:
		return "header and data"
	}
	return "none"
}

// Format is the layout of the PDUs of one direction, as agreed by ICReq and ICResp. The zero value
// has no digests and data aligned to 4 bytes.
type Format struct {
	Digests Digests
	// PDA is the alignment of data from the start of its PDU, the receiver's HPDA or CPDA:
	// 0-based dwords, at most MaxAlignment.
	PDA uint8
}

// HeaderDigest reports whether PDUs have a header digest.
func (f Format) HeaderDigest() bool { return f.Digests&DigestHeader != 0 }

// DataDigest reports whether a digest follows data.
func (f Format) DataDigest() bool { return f.Digests&DigestData != 0 }

// align returns the alignment in bytes.
func (f Format) align() int { return 4 * (int(f.PDA) + 1) }

// Header returns the common header of a capsule, data PDU or R2T with n bytes of data, 0 for none.
func (f Format) Header(t Type, n int) Header {
	h := Header{Type: t, HLEN: headerLengths[t]}
	head := int(h.HLEN)
	if f.HeaderDigest() {
		h.Flags |= FlagHDGST
		head += DigestSize
	}
	if n == 0 {
		h.PLEN = uint32(head)
		return h
	}
	align := f.align()
	h.PDO = uint8((head + align - 1) / align * align)
	h.PLEN = uint32(int(h.PDO) + n)
	if f.DataDigest() {
		h.Flags |= FlagDDGST
		h.PLEN += DigestSize
	}
	return h
}
