package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTorn says that a block is not the whole content of a single write.
var ErrTorn = errors.New("torn block")

// Stamp fills b, of 16 bytes or more, with the content of write seq of a block: both numbers
// and then words that depend on both and on their position. For seq 0 it is all zeroes.
func Stamp(b []byte, block, seq uint64) {
	if seq == 0 {
		clear(b)
		return
	}
	binary.LittleEndian.PutUint64(b, block)
	binary.LittleEndian.PutUint64(b[8:], seq)
	for i := 16; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], mix(block, seq, uint64(i)))
	}
}

// ReadStamp returns the write whose content a block has, or ErrTorn if there is none.
func ReadStamp(b []byte, block uint64) (seq uint64, err error) {
	at := binary.LittleEndian.Uint64(b)
	seq = binary.LittleEndian.Uint64(b[8:])
	if seq == 0 {
		for i, x := range b {
			if x != 0 {
				return 0, fmt.Errorf("%w %d: zeroes up to byte %d", ErrTorn, block, i)
			}
		}
		return 0, nil
	}
	if at != block {
		return 0, fmt.Errorf("%w %d: it holds write %d of block %d", ErrTorn, block, seq, at)
	}
	for i := 16; i+8 <= len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != mix(block, seq, uint64(i)) {
			return 0, fmt.Errorf("%w %d: write %d up to byte %d", ErrTorn, block, seq, i)
		}
	}
	return seq, nil
}

// mix is the finalizer of splitmix64 over the three numbers.
func mix(block, seq, place uint64) uint64 {
	x := block*0x9e3779b97f4a7c15 ^ seq*0xbf58476d1ce4e5b9 ^ place*0x94d049bb133111eb
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
