package nvme

// Locations of fields of Sanitize in the command, by which errors name them: the byte, and from bit 8 up the bit in it.
const (
	SanitizeOffSANACT = 40
	SanitizeOffEMVS   = 41 | 2<<8
)

// SanitizeAction is SANACT of Sanitize.
type SanitizeAction uint8

// Values of SANACT.
const (
	SanitizeExitFailure SanitizeAction = 1
	SanitizeBlockErase  SanitizeAction = 2
	SanitizeOverwrite   SanitizeAction = 3
	SanitizeCryptoErase SanitizeAction = 4
)

// Bits of dword 10 of Sanitize.
const (
	SanitizeAUSE  = 1 << 3  // SanitizeExitFailure may end the failure mode
	SanitizeOIPBP = 1 << 8  // overwrite: the pattern is inverted between passes
	SanitizeNDAS  = 1 << 9  // no deallocation afterwards
	SanitizeEMVS  = 1 << 10 // media can be verified afterwards
)

// Bits of SANICAP of Identify Controller.
const (
	SANICAPCrypto    = 1 << 0
	SANICAPBlock     = 1 << 1
	SANICAPOverwrite = 1 << 2
	// SANICAPUnmodified is NODMMAS 01b: media isn't modified further after a sanitize operation.
	SANICAPUnmodified = 1 << 30
)

// SetSanitize makes c a Sanitize. flags holds the other bits of dword 10; passes, 1 to 16, and
// pattern are for SanitizeOverwrite.
func (c *Command) SetSanitize(a SanitizeAction, flags uint32, passes int, pattern uint32) {
	c.start(OpSanitize, NSIDNone)
	c.SetCDW(10, uint32(a)|flags|uint32(passes&0xf)<<4)
	c.SetCDW(11, pattern)
}

// SanitizeAction is SANACT of Sanitize.
func (c *Command) SanitizeAction() SanitizeAction { return SanitizeAction(c.CDW10() & 7) }

// SanitizePasses is OWPASS of dword 10 of Sanitize, 1 to 16.
func SanitizePasses(dw10 uint32) int {
	if n := dw10 >> 4 & 0xf; n != 0 {
		return int(n)
	}
	return 16
}
