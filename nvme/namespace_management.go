package nvme

import "unsafe"

// Byte offsets of fields of Namespace Management and Namespace Attachment, by which errors name them.
const (
	NSManagementOffSEL = 40
	NSManagementOffCSI = 47
)

// NSAction is SEL of Namespace Management and Namespace Attachment.
type NSAction uint8

// Values of SEL.
const (
	NSCreate NSAction = 0 // Namespace Management
	NSDelete NSAction = 1
	NSAttach NSAction = 0 // Namespace Attachment
	NSDetach NSAction = 1
)

// SetNSCreate makes c a Namespace Management that creates a namespace of a command set. Its data is
// a NamespaceSpec, and its result the NSID of the new namespace.
func (c *Command) SetNSCreate(csi CSI) {
	c.start(OpNSManagement, NSIDNone)
	c.SetCDW(10, uint32(NSCreate))
	c.SetCDW(11, uint32(csi)<<24)
}

// SetNSDelete makes c a Namespace Management that deletes a namespace, or all with NSIDAll.
func (c *Command) SetNSDelete(nsid uint32) {
	c.start(OpNSManagement, nsid)
	c.SetCDW(10, uint32(NSDelete))
}

// SetNSAttachment makes c a Namespace Attachment; its data is a ControllerList.
func (c *Command) SetNSAttachment(nsid uint32, a NSAction) {
	c.start(OpNSAttachment, nsid)
	c.SetCDW(10, uint32(a))
}

// NSAction is the action that Namespace Management or Namespace Attachment asks for.
func (c *Command) NSAction() NSAction { return NSAction(c.CDW10() & 0xf) }

// NamespaceSpec describes a namespace to be created. It is the data of Namespace Management; its
// fields have the same offsets as in Identify Namespace.
type NamespaceSpec struct {
	NSZE     uint64 // size, blocks
	NCAP     uint64 // capacity, blocks
	_        [10]byte
	FLBAS    uint8 // LBA format
	_        [2]byte
	DPS      uint8 // protection information
	NMIC     NMIC
	_        [61]byte
	ANAGRPID uint32 // 0: the controller chooses
	_        [4]byte
	NVMSETID uint16
	ENDGID   uint16
	_        [3992]byte
}

var _ [PageSize]byte = [unsafe.Sizeof(NamespaceSpec{})]byte{}

// Format is the index of the LBA format.
func (p *NamespaceSpec) Format() int { return int(p.FLBAS&0xf | p.FLBAS>>5&3<<4) }

// AppendTo appends the page.
func (p *NamespaceSpec) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *NamespaceSpec) Parse(b []byte) error {
	return parsePage(b, p, PageSize, "Namespace Management")
}
