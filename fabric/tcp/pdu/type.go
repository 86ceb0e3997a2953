package pdu

import "fmt"

// Type is byte 0 of every PDU.
type Type uint8

// PDU types (NVMe/TCP 1.0, section 3.6). H2C is host to controller.
const (
	TypeICReq       Type = 0x00
	TypeICResp      Type = 0x01
	TypeH2CTermReq  Type = 0x02
	TypeC2HTermReq  Type = 0x03
	TypeCapsuleCmd  Type = 0x04
	TypeCapsuleResp Type = 0x05
	TypeH2CData     Type = 0x06
	TypeC2HData     Type = 0x07
	TypeR2T         Type = 0x09

	// NumTypes is one more than the highest type: the length of an array indexed by type.
	NumTypes = 0x0a
)

// Types lists the types that exist, in numerical order.
var Types = [...]Type{TypeICReq, TypeICResp, TypeH2CTermReq, TypeC2HTermReq, TypeCapsuleCmd,
	TypeCapsuleResp, TypeH2CData, TypeC2HData, TypeR2T}

var typeNames = [NumTypes]string{"ICReq", "ICResp", "H2CTermReq", "C2HTermReq", "CapsuleCmd",
	"CapsuleResp", "H2CData", "C2HData", "", "R2T"}

// String returns the specification's name of the PDU.
func (t Type) String() string {
	if t < NumTypes && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("PDU type %#02x", uint8(t))
}

// Role is an end of a connection.
type Role uint8

// The roles.
const (
	Host Role = iota
	Controller
)

// senders says who sends a type.
var senders = [NumTypes]Role{
	TypeICReq: Host, TypeH2CTermReq: Host, TypeCapsuleCmd: Host, TypeH2CData: Host,
	TypeICResp: Controller, TypeC2HTermReq: Controller, TypeCapsuleResp: Controller,
	TypeC2HData: Controller, TypeR2T: Controller,
}

// isTermReq reports whether a PDU of type t is a terminate request, which ends the connection. It has
// neither digests nor data that PDO points to.
func (t Type) isTermReq() bool { return t == TypeH2CTermReq || t == TypeC2HTermReq }
