package loadgen

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
)

// Every unit that a job with Verify writes begins with a stamp, little-endian:
//
//	 0  magic      4
//	 4  length     4 bytes of the unit, stamp included
//	 8  offset     8 bytes from the start of the device
//	16  run        8 number of the run that wrote it
//	24  version    4 counts the writes of a run
//	28  CRC-32C    4 of the stamp before it and the data behind it
const (
	stampSize  = 32
	stampMagic = 0x62566d4e // "NmVb"
	stampCRC   = 28
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeStamp fills a unit with data that no other unit, run or version has, and its stamp.
func writeStamp(unit []byte, offset int64, run uint64, version uint32) {
	le := binary.LittleEndian
	le.PutUint32(unit[0:], stampMagic)
	le.PutUint32(unit[4:], uint32(len(unit)))
	le.PutUint64(unit[8:], uint64(offset))
	le.PutUint64(unit[16:], run)
	le.PutUint32(unit[24:], version)
	fillNoise(unit[stampSize:], run^uint64(offset)*0x9e3779b97f4a7c15^uint64(version)<<32)
	le.PutUint32(unit[stampCRC:], stampSum(unit))
}

// fillNoise fills b, except for up to 7 bytes at its end, with incompressible data that depends on x.
func fillNoise(b []byte, x uint64) {
	for ; len(b) >= 8; b = b[8:] {
		x += 0x9e3779b97f4a7c15
		binary.LittleEndian.PutUint64(b, bits.RotateLeft64(x*0xd6e8feb86659fd93, 29)^x)
	}
}

func stampSum(unit []byte) uint32 {
	crc := crc32.Update(0, castagnoli, unit[:stampCRC])
	return crc32.Update(crc, castagnoli, unit[stampSize:])
}

// VerifyError reports data that is not what was written.
type VerifyError struct {
	Offset int64 // bytes from the start of the device
	Length int   // bytes of the unit
	Reason string
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("verify: %d bytes at offset %d: %s", e.Length, e.Offset, e.Reason)
}

// stamp is the content of a unit's stamp.
type stamp struct {
	length  int
	offset  int64
	run     uint64
	version uint32
}

// readStamp checks the unit at the start of b, which was read at offset.
func readStamp(b []byte, offset int64) (stamp, error) {
	le := binary.LittleEndian
	bad := func(format string, a ...any) (stamp, error) {
		return stamp{}, &VerifyError{offset, len(b), fmt.Sprintf(format, a...)}
	}
	if len(b) < stampSize || le.Uint32(b) != stampMagic {
		return bad("no stamp; what can be checked was written with --verify, and with a --bs that divides this one")
	}
	s := stamp{
		length: int(le.Uint32(b[4:])), offset: int64(le.Uint64(b[8:])),
		run: le.Uint64(b[16:]), version: le.Uint32(b[24:]),
	}
	if s.length < stampSize || s.length > len(b) {
		return bad("the stamp says that it was written in units of %d bytes; read it with a --bs that is a multiple of that", s.length)
	}
	b = b[:s.length]
	if got, want := stampSum(b), le.Uint32(b[stampCRC:]); got != want {
		return bad("CRC-32C %#08x, want %#08x", got, want)
	}
	if s.offset != offset {
		return bad("these are the data of offset %d", s.offset)
	}
	return s, nil
}

// checkStamps checks all units of b, which was read at offset and which any run may have written.
func checkStamps(b []byte, offset int64) error {
	for len(b) > 0 {
		s, err := readStamp(b, offset)
		if err != nil {
			return err
		}
		b, offset = b[s.length:], offset+int64(s.length)
	}
	return nil
}
