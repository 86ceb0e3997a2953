package nvme

import (
	"encoding/binary"
	"fmt"
)

// ANAState is the state of an ANA group, as one controller reports it.
type ANAState uint8

// ANA states.
const (
	ANAOptimized      ANAState = 0x1
	ANANonOptimized   ANAState = 0x2
	ANAInaccessible   ANAState = 0x3
	ANAPersistentLoss ANAState = 0x4
	ANAChange         ANAState = 0xf
)

// String returns the name that nvme-cli and Linux's nvmet use.
func (s ANAState) String() string {
	switch s {
	case ANAOptimized:
		return "optimized"
	case ANANonOptimized:
		return "non-optimized"
	case ANAInaccessible:
		return "inaccessible"
	case ANAPersistentLoss:
		return "persistent-loss"
	case ANAChange:
		return "change"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// LSPGroupsOnly is the log specific parameter RGO: the ANA log without NSIDs.
const LSPGroupsOnly = 1 << 0

const (
	anaHeaderSize = 16
	anaGroupSize  = 32
)

// ANALog is the Asymmetric Namespace Access log, 0Ch. Its size depends on its contents.
type ANALog struct {
	ChangeCount uint64
	Groups      []ANAGroup
}

// ANAGroup is one ANA Group descriptor.
type ANAGroup struct {
	ID          uint32 // ANAGRPID, from 1
	ChangeCount uint64
	State       ANAState
	NSIDs       NSIDList // ascending; none with LSPGroupsOnly
}

// Size is the size of the log in bytes.
func (p *ANALog) Size() int {
	n := anaHeaderSize
	for i := range p.Groups {
		n += anaGroupSize + 4*len(p.Groups[i].NSIDs)
	}
	return n
}

// ANALogSize is the size in bytes of the log of a controller that has the given numbers of groups and namespaces.
func ANALogSize(groups, namespaces uint32) uint64 {
	return anaHeaderSize + anaGroupSize*uint64(groups) + 4*uint64(namespaces)
}

// AppendTo appends the log.
func (p *ANALog) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.ChangeCount)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(p.Groups)))
	b = append(b, make([]byte, 6)...)
	for i := range p.Groups {
		g := &p.Groups[i]
		b = binary.LittleEndian.AppendUint32(b, g.ID)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(g.NSIDs)))
		b = binary.LittleEndian.AppendUint64(b, g.ChangeCount)
		b = append(b, byte(g.State&0xf))
		b = append(b, make([]byte, 15)...)
		for _, id := range g.NSIDs {
			b = binary.LittleEndian.AppendUint32(b, id)
		}
	}
	return b
}

// ANALogLength is the length in bytes of the log that begins with b, as far as b shows it. If b isn't the whole log, the
// result is more than len(b).
func ANALogLength(b []byte) uint64 {
	n := uint64(anaHeaderSize)
	if uint64(len(b)) < n {
		return n
	}
	for range binary.LittleEndian.Uint16(b[8:]) {
		if uint64(len(b)) < n+anaGroupSize {
			return n + anaGroupSize
		}
		n += anaGroupSize + 4*uint64(binary.LittleEndian.Uint32(b[n+4:]))
	}
	return n
}

// Parse reads the log from b; bytes after the last group are ignored.
func (p *ANALog) Parse(b []byte) error {
	if len(b) < anaHeaderSize {
		return shortError(LogANA.String(), len(b), anaHeaderSize)
	}
	*p = ANALog{ChangeCount: binary.LittleEndian.Uint64(b)}
	n := int(binary.LittleEndian.Uint16(b[8:]))
	b = b[anaHeaderSize:]
	for i := range n {
		if len(b) < anaGroupSize {
			return fmt.Errorf("group %d of %d: %w", i, n, shortError(LogANA.String(), len(b), anaGroupSize))
		}
		g := ANAGroup{
			ID:          binary.LittleEndian.Uint32(b),
			ChangeCount: binary.LittleEndian.Uint64(b[8:]),
			State:       ANAState(b[16] & 0xf),
		}
		ids := uint64(binary.LittleEndian.Uint32(b[4:]))
		b = b[anaGroupSize:]
		if uint64(len(b)) < 4*ids {
			return fmt.Errorf("nvme: %s: %w: group %d lists %d namespaces, %d bytes are left", LogANA, ErrMalformed, g.ID, ids, len(b))
		}
		for j := range int(ids) {
			g.NSIDs = append(g.NSIDs, binary.LittleEndian.Uint32(b[4*j:]))
		}
		b = b[4*ids:]
		p.Groups = append(p.Groups, g)
	}
	return nil
}
