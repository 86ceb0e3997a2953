package tcp

import (
	"encoding/binary"
	"hash/crc32"
	"runtime/debug"

	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// DigestSize is the length of a header or data digest, in bytes.
const DigestSize = 4

// castagnoli is the CRC32C table of both digests (section 3.3.1.1).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Digest is the CRC32C of b. On the wire it is little-endian.
func Digest(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// digestUpdate continues a digest over more bytes; it starts with 0.
func digestUpdate(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// digestOnDemand is digestUpdate over memory of which pages may be missing; ok is false where one is.
func digestOnDemand(crc uint32, b []byte) (sum uint32, ok bool) {
	ok = true
	defer mem.Caught(&ok, debug.SetPanicOnFault(true), b)
	return digestUpdate(crc, b), ok
}

// appendDigest appends the digest of header to b.
func appendDigest(b, header []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, Digest(header))
}

// appendCRC appends a finished digest to b.
func appendCRC(b []byte, crc uint32) []byte { return binary.LittleEndian.AppendUint32(b, crc) }
