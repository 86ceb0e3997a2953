package nvme

import "fmt"

// AdminName returns the specification's name of an admin command.
func (o Opcode) AdminName() string {
	switch o {
	case OpGetLogPage:
		return "Get Log Page"
	case OpIdentify:
		return "Identify"
	case OpAbort:
		return "Abort"
	case OpSetFeatures:
		return "Set Features"
	case OpGetFeatures:
		return "Get Features"
	case OpAsyncEvent:
		return "Asynchronous Event Request"
	case OpNSManagement:
		return "Namespace Management"
	case OpNSAttachment:
		return "Namespace Attachment"
	case OpKeepAlive:
		return "Keep Alive"
	case OpFormat:
		return "Format NVM"
	case OpSanitize:
		return "Sanitize"
	case OpFabrics:
		return "Fabrics command"
	}
	return fmt.Sprintf("admin command %02Xh", uint8(o))
}

// IOName returns the specification's name of an I/O command of the NVM command set.
func (o Opcode) IOName() string {
	switch o {
	case OpFlush:
		return "Flush"
	case OpWrite:
		return "Write"
	case OpRead:
		return "Read"
	case OpWriteUncorrectable:
		return "Write Uncorrectable"
	case OpCompare:
		return "Compare"
	case OpWriteZeroes:
		return "Write Zeroes"
	case OpDSM:
		return "Dataset Management"
	case OpVerify:
		return "Verify"
	case OpResvRegister:
		return "Reservation Register"
	case OpResvReport:
		return "Reservation Report"
	case OpResvAcquire:
		return "Reservation Acquire"
	case OpResvRelease:
		return "Reservation Release"
	case OpCopy:
		return "Copy"
	case OpFabrics:
		return "Fabrics command"
	}
	return fmt.Sprintf("I/O command %02Xh", uint8(o))
}

func (t FCType) String() string {
	switch t {
	case FCPropertySet:
		return "Property Set"
	case FCConnect:
		return "Connect"
	case FCPropertyGet:
		return "Property Get"
	case FCAuthSend:
		return "Authentication Send"
	case FCAuthReceive:
		return "Authentication Receive"
	case FCDisconnect:
		return "Disconnect"
	}
	return fmt.Sprintf("Fabrics command %02Xh", uint8(t))
}

// Name returns the specification's name of the command on the admin queue (qid 0) or an I/O queue,
// with its main parameter where that helps the reader: "Get Log Page (SMART / Health Information)".
func (c *Command) Name(qid uint16) string {
	op := c.Opcode()
	switch {
	case op == OpFabrics:
		switch t := c.FCType(); t {
		case FCPropertyGet, FCPropertySet:
			return t.String() + " (" + c.Property().String() + ")"
		default:
			return t.String()
		}
	case qid != 0:
		return op.IOName()
	case op == OpGetLogPage:
		return op.AdminName() + " (" + c.LID().String() + ")"
	case op == OpGetFeatures, op == OpSetFeatures:
		return op.AdminName() + " (" + c.FID().String() + ")"
	case op == OpIdentify:
		return fmt.Sprintf("%s (CNS %02Xh)", op.AdminName(), uint8(c.CNS()))
	}
	return op.AdminName()
}
