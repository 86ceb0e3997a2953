package wire

// Error says why bytes are not a packet. It is a small number, which costs a receiver that is flooded no allocation.
type Error uint8

// Reasons.
const (
	ErrShort       Error = iota + 1 // fewer bytes than the headers need
	ErrLong                         // payload of more than MaxPayload bytes
	ErrAlign                        // length is not a multiple of four
	ErrTVer                         // transport header version is not 0
	ErrOpcode                       // reserved opcode, or one of a service that is not offered
	ErrPayloadSize                  // the opcode has a fixed payload size, and this isn't it
)

var errorText = [...]string{
	0:              "no error",
	ErrShort:       "packet shorter than its headers",
	ErrLong:        "payload longer than any packet's",
	ErrAlign:       "packet length not a multiple of 4",
	ErrTVer:        "transport header version not 0",
	ErrOpcode:      "unknown opcode",
	ErrPayloadSize: "payload size wrong for the opcode",
}

// Error describes the fault.
func (e Error) Error() string {
	if int(e) < len(errorText) {
		return "roce: " + errorText[e]
	}
	return "roce: unknown packet error"
}
