package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

const (
	page = 4096

	// Capacity is how many bytes of records a ring holds: about as much as a socket's receive buffer.
	Capacity = 2 << 20
	// Size is how many bytes of memory a ring takes.
	Size = page + Capacity

	// MaxTrain is the longest train in bytes: the UDP payload of the longest datagram.
	MaxTrain = 65507

	recordAlign  = 64
	recordHeader = 16
	skip         = 1<<32 - 1 // the length of a record that fills the rest up to the end
)

// ErrCorrupt says that the other side has written something invalid.
var ErrCorrupt = errors.New("shared memory is corrupt")

// shared is the first page.
type shared struct {
	tail   atomic.Uint64 // bytes written since the beginning
	_      [recordAlign - 8]byte
	head   atomic.Uint64 // bytes read and released
	_      [recordAlign - 8]byte
	asleep atomic.Uint32 // the number of the reader's sleep, if it wants to be woken; 0 while it is awake
}

// header is in front of each train.
type header struct {
	bytes   uint32
	segment uint32
	class   uint32
	_       uint32
}

// memory is the memory of a ring.
type memory struct {
	*shared
	records []byte
}

func newMemory(b []byte) (memory, error) {
	if len(b) != Size || uintptr(unsafe.Pointer(&b[0]))%page != 0 {
		return memory{}, fmt.Errorf("ring: %d bytes of memory: want %d, aligned to %d", len(b), Size, page)
	}
	return memory{shared: (*shared)(unsafe.Pointer(&b[0])), records: b[page:]}, nil
}

func (m *memory) header(at uint64) *header {
	return (*header)(unsafe.Pointer(&m.records[at&(Capacity-1)]))
}

// room returns how many bytes a record with a train of n bytes takes.
func room(n int) uint64 {
	return (uint64(n) + recordHeader + recordAlign - 1) &^ (recordAlign - 1)
}
