package nvme

import "encoding/binary"

// Values of SECP, SPSP0 and SPSP1 in the commands of NVMe in-band authentication (NVMe base,
// section "Authentication Send Command and Response").
const (
	AuthSECP  = 0xe9
	AuthSPSP0 = 0x01
	AuthSPSP1 = 0x01
)

// Byte offsets in Authentication Send and Authentication Receive.
const (
	AuthOffSPSP0  = 41
	AuthOffSPSP1  = 42
	AuthOffSECP   = 43
	AuthOffLength = 44 // TL, or AL
)

// SetAuthSend makes c an Authentication Send that carries a message of n bytes (TL).
func (c *Command) SetAuthSend(n uint32) { c.setAuth(FCAuthSend, n) }

// SetAuthReceive makes c an Authentication Receive into a buffer of n bytes (AL).
func (c *Command) SetAuthReceive(n uint32) { c.setAuth(FCAuthReceive, n) }

func (c *Command) setAuth(t FCType, n uint32) {
	c.startFabrics(t)
	c[AuthOffSPSP0], c[AuthOffSPSP1], c[AuthOffSECP] = AuthSPSP0, AuthSPSP1, AuthSECP
	binary.LittleEndian.PutUint32(c[AuthOffLength:], n)
}

// AuthLength is TL of Authentication Send, or AL of Authentication Receive, in bytes.
func (c *Command) AuthLength() uint32 { return binary.LittleEndian.Uint32(c[AuthOffLength:]) }
