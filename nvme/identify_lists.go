package nvme

import (
	"encoding/binary"
	"fmt"
)

// MaxNSIDList is the number of entries in a namespace list page.
const MaxNSIDList = PageSize / 4

// NSIDList is a Namespace List: ascending NSIDs, at most MaxNSIDList. It is the page of CNS
// 02h and 10h, and of the Changed Attached Namespace List log.
type NSIDList []uint32

// AppendTo appends the whole page of 4096 bytes, zero after the last entry. Entries beyond
// MaxNSIDList are left out: the host asks for the rest with another command.
func (l NSIDList) AppendTo(b []byte) []byte {
	if len(l) > MaxNSIDList {
		l = l[:MaxNSIDList]
	}
	for _, id := range l {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return append(b, make([]byte, PageSize-4*len(l))...)
}

// ParseNSIDList reads the entries before the first zero.
func ParseNSIDList(b []byte) (NSIDList, error) {
	if len(b) < PageSize {
		return nil, shortError("Namespace List", len(b), PageSize)
	}
	var l NSIDList
	for i := 0; i < PageSize; i += 4 {
		id := binary.LittleEndian.Uint32(b[i:])
		if id == 0 {
			break
		}
		l = append(l, id)
	}
	return l, nil
}

// MaxControllerList is the number of entries in a controller list page.
const MaxControllerList = PageSize/2 - 1

// ControllerList is a Controller List: ascending CNTLIDs, the page of CNS 12h and 13h.
type ControllerList []uint16

// AppendTo appends the whole page: the number of entries, the entries, and zeroes.
func (l ControllerList) AppendTo(b []byte) []byte {
	if len(l) > MaxControllerList {
		l = l[:MaxControllerList]
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(l)))
	for _, id := range l {
		b = binary.LittleEndian.AppendUint16(b, id)
	}
	return append(b, make([]byte, PageSize-2-2*len(l))...)
}

// ControllerListOff is the offset of entry i in the page, in bytes.
func ControllerListOff(i int) uint64 { return 2 + 2*uint64(i) }

// ParseControllerList reads a controller list.
func ParseControllerList(b []byte) (ControllerList, error) {
	if len(b) < PageSize {
		return nil, shortError("Controller List", len(b), PageSize)
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n > MaxControllerList {
		return nil, fmt.Errorf("nvme: Controller List: %w: %d entries, at most %d fit", ErrMalformed, n, MaxControllerList)
	}
	l := make(ControllerList, n)
	for i := range l {
		l[i] = binary.LittleEndian.Uint16(b[ControllerListOff(i):])
	}
	return l, nil
}
