package nvme

import "unsafe"

// EffectsLogSize is the size of the page in bytes.
const EffectsLogSize = PageSize

// EffectsLog is the Commands Supported and Effects log, 05h.
type EffectsLog struct {
	Admin [256]Effects // ACS, by opcode
	IO    [256]Effects // IOCS, by opcode
	_     [2048]byte
}

var _ [EffectsLogSize]byte = [unsafe.Sizeof(EffectsLog{})]byte{}

// Effects says whether a command is supported, and what it affects.
type Effects uint32

// Bits of Effects; the scopes, CSP, are in bits 31:20.
const (
	EffectSupported       Effects = 1 << 0 // CSUPP
	EffectContentChange   Effects = 1 << 1 // LBCC
	EffectCapacityChange  Effects = 1 << 2 // NCC
	EffectInventoryChange Effects = 1 << 3 // NIC
	EffectCapability      Effects = 1 << 4 // CCC

	EffectScopeNamespace  Effects = 1 << 20
	EffectScopeController Effects = 1 << 21
	EffectScopeSubsystem  Effects = 1 << 25 // NVM subsystem
)

// AppendTo appends the page.
func (p *EffectsLog) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *EffectsLog) Parse(b []byte) error {
	return parsePage(b, p, EffectsLogSize, LogEffects.String())
}
