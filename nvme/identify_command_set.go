package nvme

import "unsafe"

// IdentifyControllerNVM is the NVM Command Set Identify Controller data structure, CNS 06h
// with CSI 0. Zero in a field means that no limit is reported.
type IdentifyControllerNVM struct {
	VSL   uint8  // Verify size limit, 2^n × 4096 bytes
	WZSL  uint8  // Write Zeroes size limit, 2^n × 4096 bytes
	WUSL  uint8  // Write Uncorrectable size limit, 2^n × 4096 bytes
	DMRL  uint8  // DSM: ranges in a command
	DMRSL uint32 // DSM: blocks in a range
	DMSL  uint64 // DSM: blocks in a command

	KPIOCAP uint8   // key per I/O: bit 0 supported
	WZDSL   uint8   // size limit of a Write Zeroes that deallocates, 2^n × 4096 bytes
	AOCS    uint16  // admin commands: bit 0 Get LBA Status reports allocated blocks
	VER     Version // of the NVM command set; 0 is not reported
	LBAMQF  uint8   // format of what user data migration queues hold
	_       [4071]byte
}

var _ [PageSize]byte = [unsafe.Sizeof(IdentifyControllerNVM{})]byte{}

// AppendTo appends the page.
func (p *IdentifyControllerNVM) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *IdentifyControllerNVM) Parse(b []byte) error {
	return parsePage(b, p, PageSize, "NVM Command Set Identify Controller")
}

// CommandSets is the Identify I/O Command Set data structure, CNS 1Ch: the combinations of
// command sets that a controller supports, each a vector with a bit for each CSI.
type CommandSets [PageSize / 8]uint64

// CommandSetNVM is the bit of the NVM command set.
const CommandSetNVM uint64 = 1 << CSINVM

// AppendTo appends the page.
func (p *CommandSets) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *CommandSets) Parse(b []byte) error {
	return parsePage(b, p, PageSize, "Identify I/O Command Set")
}
