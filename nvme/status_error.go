package nvme

import (
	"fmt"
	"strings"
)

// Error makes Status an error, so that errors.Is(err, nvme.StatusInvalidField) tests for the
// status of a command that failed.
func (s Status) Error() string { return s.String() }

// StatusError is the error of a command that completed with a status other than success.
type StatusError struct {
	Status  Status
	Command string // its name, as Command.Name gives it; may be empty
	QID     uint16
	NSID    uint32
	Blocks  BlockRange // blocks that an I/O command names
	Result  uint64     // of the completion
}

// ErrFor returns nil if q reports success, and otherwise a *StatusError that names the command c
// of queue qid.
func (q *Completion) ErrFor(c *Command, qid uint16) error {
	if q.Status().OK() {
		return nil
	}
	e := &StatusError{Status: q.Status(), Command: c.Name(qid), QID: qid, Result: q.Result()}
	if c.Opcode() != OpFabrics {
		e.NSID = c.NSID()
		if qid != 0 {
			e.Blocks = c.BlockRange()
		}
	}
	return e
}

// Error names the command, its blocks, what happened and the remedy, if there is one.
func (e *StatusError) Error() string {
	var b strings.Builder
	b.WriteString("nvme: ")
	if e.Command != "" {
		b.WriteString(e.Command)
		if e.NSID != 0 && e.NSID != NSIDAll {
			fmt.Fprintf(&b, " on namespace %d", e.NSID)
		}
		if e.Blocks != (BlockRange{}) {
			fmt.Fprintf(&b, ", %v", e.Blocks)
		}
		b.WriteString(": ")
	}
	io := e.QID != 0 && !e.isConnect()
	b.WriteString(e.Status.nameFor(io))
	if e.isConnect() && e.Status.Code() == StatusConnectInvalidParameter {
		fmt.Fprintf(&b, ": %v", ConnectInvalid(e.Result))
	}
	if r := e.remedy(); r != "" {
		b.WriteString("; ")
		b.WriteString(r)
	}
	return b.String()
}

func (e *StatusError) isConnect() bool { return e.Command == FCConnect.String() }

// Is matches a Status by its code.
func (e *StatusError) Is(target error) bool {
	s, ok := target.(Status)
	return ok && s.Code() == e.Status.Code()
}

// remedy says what a user can do about the error; it is empty if there is nothing.
func (e *StatusError) remedy() string {
	if e.isConnect() {
		return e.connectRemedy()
	}
	switch e.Status.Code() {
	case StatusInvalidNamespace:
		return "list the namespaces of the controller and use one of them"
	case StatusNamespaceWriteProtected:
		return "the target exports it read-only, or a host has protected it (feature 84h)"
	case StatusLBAOutOfRange:
		return "the range ends beyond the namespace"
	case StatusCapacityExceeded:
		return "the volume behind the namespace is full"
	case StatusReservationConflict:
		return "another host holds a reservation, or this one isn't registered under that key"
	case StatusAuthenticationRequired:
		return "the target demands a DH-HMAC-CHAP secret"
	case StatusANAInaccessible, StatusANAPersistentLoss:
		return "use another path to the namespace"
	}
	return ""
}

func (e *StatusError) connectRemedy() string {
	switch e.Status.Code() {
	case StatusConnectInvalidParameter:
		if r := ConnectInvalid(e.Result); r.InData() && r.Offset() == ConnectDataOffSUBNQN {
			return "the target doesn't export that subsystem here: ask its discovery service which it does"
		}
	case StatusConnectInvalidHost:
		return "the subsystem doesn't admit this host NQN"
	case StatusConnectBusy:
		return "the target has no controller or queue free: try again later"
	case StatusConnectRestartDiscovery:
		return "ask the discovery service again"
	}
	return ""
}
