package nvme

import (
	"encoding/binary"
	"fmt"
)

// ConnectDataSize is the size of Connect data in bytes.
const ConnectDataSize = 1024

// CNTLID values.
const (
	CNTLIDDynamic uint16 = 0xffff // Connect: the controller allocates one
	CNTLIDMax     uint16 = 0xffef // the largest that a controller may have
)

// AdminQueueSize is the size of the admin queue that hosts customarily ask for, in entries, and
// the smallest value allowed in ASQSZ of a discovery entry.
const AdminQueueSize = 32

// CATTR is the attributes byte of Connect.
type CATTR uint8

// Bits of CATTR.
const (
	CATTRPriorityMask     CATTR = 3      // bits 1:0, priority class
	CATTRNoSQFlowControl  CATTR = 1 << 2 // SQHD is not used
	CATTRDeleteIndividual CATTR = 1 << 3 // I/O queues may be deleted one by one
)

// Byte offsets in Connect, as the result of StatusConnectInvalidParameter names them.
const (
	ConnectOffRECFMT = 40
	ConnectOffQID    = 42
	ConnectOffSQSIZE = 44
	ConnectOffCATTR  = 46
	ConnectOffKATO   = 48
)

// Byte offsets in Connect data.
const (
	ConnectDataOffHostID  = 0
	ConnectDataOffCNTLID  = 16
	ConnectDataOffSUBNQN  = 256
	ConnectDataOffHOSTNQN = 512
)

// SetConnect makes c a Connect command. sqsize is 0-based and kato is in milliseconds.
func (c *Command) SetConnect(qid, sqsize uint16, cattr CATTR, kato uint32) {
	c.startFabrics(FCConnect)
	binary.LittleEndian.PutUint16(c[ConnectOffQID:], qid)
	binary.LittleEndian.PutUint16(c[ConnectOffSQSIZE:], sqsize)
	c[ConnectOffCATTR] = byte(cattr)
	binary.LittleEndian.PutUint32(c[ConnectOffKATO:], kato)
}

// ConnectRECFMT is the record format of Connect; 0 is the only one.
func (c *Command) ConnectRECFMT() uint16 { return binary.LittleEndian.Uint16(c[ConnectOffRECFMT:]) }

// ConnectQID is the queue that Connect creates.
func (c *Command) ConnectQID() uint16 { return binary.LittleEndian.Uint16(c[ConnectOffQID:]) }

// ConnectSQSIZE is the size of the queue, 0-based.
func (c *Command) ConnectSQSIZE() uint16 { return binary.LittleEndian.Uint16(c[ConnectOffSQSIZE:]) }

// ConnectCATTR is the attributes of Connect.
func (c *Command) ConnectCATTR() CATTR { return CATTR(c[ConnectOffCATTR]) }

// ConnectKATO is the keep alive timeout in milliseconds; 0 is none.
func (c *Command) ConnectKATO() uint32 { return binary.LittleEndian.Uint32(c[ConnectOffKATO:]) }

// ConnectData is the data of Connect.
type ConnectData struct {
	HostID  HostID
	CNTLID  uint16 // CNTLIDDynamic on the admin queue
	SubNQN  string
	HostNQN string
}

// AppendTo appends the 1024 bytes. It fails if a name is longer than MaxNQN.
func (d *ConnectData) AppendTo(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, make([]byte, ConnectDataSize)...)
	p := b[start:]
	copy(p[ConnectDataOffHostID:], d.HostID[:])
	binary.LittleEndian.PutUint16(p[ConnectDataOffCNTLID:], d.CNTLID)
	if err := putNQN(p[ConnectDataOffSUBNQN:], "subsystem", d.SubNQN); err != nil {
		return b[:start], err
	}
	if err := putNQN(p[ConnectDataOffHOSTNQN:], "host", d.HostNQN); err != nil {
		return b[:start], err
	}
	return b, nil
}

func putNQN(dst []byte, whose, nqn string) error {
	if len(nqn) > MaxNQN {
		return fmt.Errorf("nvme: %s NQN of Connect: %w: it has %d bytes, the limit is %d", whose, ErrNQN, len(nqn), MaxNQN)
	}
	copy(dst, nqn)
	return nil
}

// Parse reads Connect data. It fails if a name has no NUL within its 256 bytes or is longer than
// MaxNQN; it doesn't check that names are well formed: CheckNQN does.
func (d *ConnectData) Parse(b []byte) error {
	if len(b) < ConnectDataSize {
		return shortError("Connect data", len(b), ConnectDataSize)
	}
	d.HostID = HostID(b[ConnectDataOffHostID:][:16])
	d.CNTLID = binary.LittleEndian.Uint16(b[ConnectDataOffCNTLID:])
	var err error
	if d.SubNQN, err = nqnField(b[ConnectDataOffSUBNQN:][:256], "SUBNQN"); err != nil {
		return err
	}
	d.HostNQN, err = nqnField(b[ConnectDataOffHOSTNQN:][:256], "HOSTNQN")
	return err
}

func nqnField(b []byte, field string) (string, error) {
	for i, c := range b[:MaxNQN+1] {
		if c == 0 {
			return string(b[:i]), nil
		}
	}
	return "", fmt.Errorf("nvme: Connect data: %s: %w: not ended by NUL within %d bytes", field, ErrMalformed, MaxNQN+1)
}

// ConnectResult is the result of a successful Connect.
type ConnectResult uint32

// Bits of ConnectResult.
const (
	ConnectATR  ConnectResult = 1 << 17 // authentication is required
	ConnectASCR ConnectResult = 1 << 18 // authentication and secure channel are required
)

// CNTLID is the controller that the host is connected to.
func (r ConnectResult) CNTLID() uint16 { return uint16(r) }

// ConnectInvalid is the result of a Connect that failed with StatusConnectInvalidParameter: it
// says where the invalid parameter is.
type ConnectInvalid uint32

// connectInData is IATTR: the offset is in the data, not in the command.
const connectInData ConnectInvalid = 1 << 16

// InvalidCommand returns the result that points to an invalid byte of the command (ConnectOff…).
func InvalidCommand(offset uint16) ConnectInvalid { return ConnectInvalid(offset) }

// InvalidData returns the result that points to an invalid byte of the Connect data (ConnectDataOff…).
func InvalidData(offset uint16) ConnectInvalid { return ConnectInvalid(offset) | connectInData }

// Offset is where the invalid parameter begins, in bytes.
func (r ConnectInvalid) Offset() uint16 { return uint16(r) }

// InData reports whether the offset is in Connect data.
func (r ConnectInvalid) InData() bool { return r&connectInData != 0 }

// String names the parameter.
func (r ConnectInvalid) String() string {
	if r.InData() {
		switch r.Offset() {
		case ConnectDataOffHostID:
			return "host ID"
		case ConnectDataOffCNTLID:
			return "CNTLID"
		case ConnectDataOffSUBNQN:
			return "subsystem NQN"
		case ConnectDataOffHOSTNQN:
			return "host NQN"
		}
		return fmt.Sprintf("byte %d of the Connect data", r.Offset())
	}
	switch r.Offset() {
	case ConnectOffRECFMT:
		return "record format"
	case ConnectOffQID:
		return "queue ID"
	case ConnectOffSQSIZE:
		return "queue size"
	case ConnectOffCATTR:
		return "connect attributes"
	case ConnectOffKATO:
		return "keep alive timeout"
	}
	return fmt.Sprintf("byte %d of the Connect command", r.Offset())
}
