package mad

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed says that a datagram isn't a CM message that this package understands.
var ErrMalformed = errors.New("not a CM management datagram")

// Size is the length of every management datagram (IBTA 13.4.2).
const Size = 256

// The MAD header (IBTA 13.4.3) of every CM message. All fields are big-endian.
//
//	0 BaseVersion  1 MgmtClass  2 ClassVersion  3 Method  4 Status  6 ClassSpecific
//	8 TransactionID  16 AttributeID  18 reserved  20 AttributeModifier
const (
	HeaderSize = 24
	bodySize   = Size - HeaderSize

	baseVersion  = 1
	classCM      = 0x07
	classVersion = 2
	methodSend   = 0x03
)

// AttributeID names a CM message (IBTA table 97 in 12.6).
type AttributeID uint16

// The messages of communication management.
const (
	AttrREQ     AttributeID = 0x10
	AttrMRA     AttributeID = 0x11
	AttrREJ     AttributeID = 0x12
	AttrREP     AttributeID = 0x13
	AttrRTU     AttributeID = 0x14
	AttrDREQ    AttributeID = 0x15
	AttrDREP    AttributeID = 0x16
	AttrSIDRREQ AttributeID = 0x17
	AttrSIDRREP AttributeID = 0x18
	AttrLAP     AttributeID = 0x19
	AttrAPR     AttributeID = 0x1a

	firstAttr = AttrREQ
	lastAttr  = AttrAPR
)

var attributeNames = [...]string{
	"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR",
}

func (a AttributeID) String() string {
	if a < firstAttr || a > lastAttr {
		return fmt.Sprintf("attribute %#04x", uint16(a))
	}
	return attributeNames[a-firstAttr]
}

// Message is the part of a CM MAD after its header. The pointers to the message types of this package implement it.
type Message interface {
	// AttributeID returns the attribute that names the message in the MAD header.
	AttributeID() AttributeID
	put(body []byte) // into bodySize zero bytes
	get(body []byte) // from bodySize bytes
}

// newMessage returns an empty message of an attribute; nil for one outside the table.
func newMessage(a AttributeID) Message {
	switch a {
	case AttrREQ:
		return new(REQ)
	case AttrMRA:
		return new(MRA)
	case AttrREJ:
		return new(REJ)
	case AttrREP:
		return new(REP)
	case AttrRTU:
		return new(RTU)
	case AttrDREQ:
		return new(DREQ)
	case AttrDREP:
		return new(DREP)
	case AttrSIDRREQ:
		return new(SIDRREQ)
	case AttrSIDRREP:
		return new(SIDRREP)
	case AttrLAP:
		return new(LAP)
	case AttrAPR:
		return new(APR)
	}
	return nil
}

// Append appends the Size bytes of m under the transaction ID tid to b.
func Append(b []byte, tid uint64, m Message) []byte {
	start := len(b)
	b = append(b, make([]byte, Size)...)
	mad := b[start:]
	mad[0] = baseVersion
	mad[1] = classCM
	mad[2] = classVersion
	mad[3] = methodSend
	binary.BigEndian.PutUint64(mad[8:], tid)
	binary.BigEndian.PutUint16(mad[16:], uint16(m.AttributeID()))
	if o, ok := m.(optioned); ok {
		binary.BigEndian.PutUint32(mad[20:], *o.options())
	}
	m.put(mad[HeaderSize:])
	return b
}

// optioned is a message whose AttributeModifier has a meaning: the options of enhanced connection establishment, which
// are defined by the vendor.
type optioned interface{ options() *uint32 }

// Parse decodes a MAD. The message doesn't retain mad. Status and ClassSpecific are ignored, and so is
// AttributeModifier, except in messages in which it has a meaning. An error is an ErrMalformed that names the field.
func Parse(mad []byte) (tid uint64, m Message, err error) {
	if len(mad) != Size {
		return 0, nil, fmt.Errorf("%w: %d bytes, want %d", ErrMalformed, len(mad), Size)
	}
	for _, f := range [...]struct {
		name      string
		got, want byte
	}{
		{"BaseVersion", mad[0], baseVersion},
		{"MgmtClass", mad[1], classCM},
		{"ClassVersion", mad[2], classVersion},
		{"Method", mad[3], methodSend},
	} {
		if f.got != f.want {
			return 0, nil, fmt.Errorf("%w: %s %#02x, want %#02x", ErrMalformed, f.name, f.got, f.want)
		}
	}
	attr := AttributeID(binary.BigEndian.Uint16(mad[16:]))
	if m = newMessage(attr); m == nil {
		return 0, nil, fmt.Errorf("%w: unknown %v", ErrMalformed, attr)
	}
	if o, ok := m.(optioned); ok {
		*o.options() = binary.BigEndian.Uint32(mad[20:])
	}
	m.get(mad[HeaderSize:])
	return binary.BigEndian.Uint64(mad[8:]), m, nil
}

// CommIDs are the communication IDs at the start of most messages, from the sender's point of view: the receiver finds
// its own in Remote.
type CommIDs struct {
	Local, Remote uint32
}

// Reversed returns the same IDs from the other side's point of view, for an answer.
func (c CommIDs) Reversed() CommIDs { return CommIDs{c.Remote, c.Local} }

// RemoteID returns the receiver's communication ID that a datagram of Size bytes names, 0 for none. The rest isn't
// checked: Parse may refuse the datagram.
func RemoteID(mad []byte) uint32 {
	switch AttributeID(binary.BigEndian.Uint16(mad[16:])) {
	case AttrREQ, AttrSIDRREQ, AttrSIDRREP: // others have CommIDs
		return 0
	}
	var ids CommIDs
	ids.get(mad[HeaderSize:])
	return ids.Remote
}

func (c *CommIDs) put(b []byte) {
	binary.BigEndian.PutUint32(b, c.Local)
	binary.BigEndian.PutUint32(b[4:], c.Remote)
}

func (c *CommIDs) get(b []byte) {
	c.Local = binary.BigEndian.Uint32(b)
	c.Remote = binary.BigEndian.Uint32(b[4:])
}

// AnsweredMessage is the two-bit code by which MRA and REJ name the message that they answer.
type AnsweredMessage uint8

// Codes of the answered message.
const (
	AnswersREQ AnsweredMessage = iota
	AnswersREP
	AnswersOther
)

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func putUint24(b []byte, v uint32) {
	b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v)
}

func bit(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}
