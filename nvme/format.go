package nvme

// Locations of fields of Format NVM in the command, by which errors name them: the byte, and from
// bit 8 up the bit in it.
const (
	FormatOffLBAF = 40
	FormatOffPI   = 40 | 5<<8
	FormatOffSES  = 41 | 1<<8
)

// SecureErase is SES of Format NVM.
type SecureErase uint8

// Values of SecureErase.
const (
	EraseNone   SecureErase = 0
	EraseUser   SecureErase = 1 // user data
	EraseCrypto SecureErase = 2
)

// SetFormat makes c a Format NVM to an LBA format, without metadata.
func (c *Command) SetFormat(nsid uint32, lbaf int, ses SecureErase) {
	c.start(OpFormat, nsid)
	c.SetCDW(10, uint32(lbaf&0xf)|uint32(lbaf>>4&3)<<12|uint32(ses&7)<<9)
}

// FormatLBAF is the LBA format that Format NVM asks for.
func (c *Command) FormatLBAF() int { return int(c.CDW10()&0xf | c.CDW10()>>12&3<<4) }

// FormatPI is the protection information that Format NVM asks for; 0 is none.
func (c *Command) FormatPI() uint8 { return uint8(c.CDW10() >> 5 & 7) }

// FormatSES is what Format NVM is to erase.
func (c *Command) FormatSES() SecureErase { return SecureErase(c.CDW10() >> 9 & 7) }

// FNANoBroadcast is bit 3 of FNA of Identify Controller: Format NVM doesn't support NSIDAll.
const FNANoBroadcast = 1 << 3
