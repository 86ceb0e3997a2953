package nvme

import "unsafe"

// FirmwareLogSize is the size of the page in bytes.
const FirmwareLogSize = 512

// FirmwareLog is the Firmware Slot Information log, 03h.
type FirmwareLog struct {
	AFI uint8 // bits 2:0 the active slot, 6:4 the slot to activate at the next reset
	_   [7]byte
	FRS [7][8]byte // revisions of slots 1 to 7, padded with spaces; zero for an empty slot
	_   [448]byte
}

var _ [FirmwareLogSize]byte = [unsafe.Sizeof(FirmwareLog{})]byte{}

// Active is the slot of the firmware that is running, 1 to 7.
func (p *FirmwareLog) Active() int { return int(p.AFI & 7) }

// AppendTo appends the page.
func (p *FirmwareLog) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *FirmwareLog) Parse(b []byte) error {
	return parsePage(b, p, FirmwareLogSize, LogFirmware.String())
}
