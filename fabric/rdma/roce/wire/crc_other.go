//go:build !amd64

package wire

import "hash/crc32"

// crcLongUpdate is crcUpdate for long p.
func crcLongUpdate(state uint32, p []byte) uint32 {
	return ^crc32.Update(^state, crc32.IEEETable, p)
}
