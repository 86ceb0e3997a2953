package pdu

import (
	"encoding/binary"
	"hash/crc32"
)

// DigestSize is the length of a header or data digest, in bytes.
const DigestSize = 4

// castagnoli is the CRC32C table of both digests (section 3.3.1.1).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Digest returns the CRC32C of b.
func Digest(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// UpdateDigest continues a digest over more bytes; the first crc is 0.
func UpdateDigest(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// AppendDigest appends a digest as it is on the wire, little-endian.
func AppendDigest(b []byte, crc uint32) []byte { return binary.LittleEndian.AppendUint32(b, crc) }
