package tcp

import (
	"encoding/binary"
	"hash/crc32"
)

// DigestSize is the length of a header or data digest, in bytes.
const DigestSize = 4

// castagnoli is the CRC32C table of both digests (section 3.3.1.1).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Digest is the CRC32C of b. On the wire it is little-endian.
func Digest(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// digestUpdate continues a digest over more bytes; it starts with 0.
func digestUpdate(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// appendDigest appends the digest of header to b.
func appendDigest(b, header []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, Digest(header))
}

// appendCRC appends a finished digest to b.
func appendCRC(b []byte, crc uint32) []byte { return binary.LittleEndian.AppendUint32(b, crc) }
