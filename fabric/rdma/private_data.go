package rdma

import (
	"encoding/binary"
	"fmt"
)

// Sizes of the private data that NVMe/RDMA puts into connection management messages
// (NVMe/RDMA transport specification, section "RDMA_CM private data").
const (
	connectRequestSize = 32
	connectAcceptSize  = 32
	connectRejectSize  = 4
)

// connectRequest is the private data of a connection request, little-endian.
type connectRequest struct {
	QID     uint16
	HRQSize uint16 // receives that the host posted
	HSQSize uint16 // entries of the host's submission queue, 0's based
	CNTLID  uint16 // 0 on admin queues and from older hosts
}

func (c connectRequest) bytes() []byte {
	var p [connectRequestSize]byte
	binary.LittleEndian.PutUint16(p[2:], c.QID)
	binary.LittleEndian.PutUint16(p[4:], c.HRQSize)
	binary.LittleEndian.PutUint16(p[6:], c.HSQSize)
	binary.LittleEndian.PutUint16(p[8:], c.CNTLID)
	return p[:]
}

// parseConnectRequest parses a host's private data. If it can't, status is the NVMe/RDMA code to refuse with.
func parseConnectRequest(b []byte) (c connectRequest, status RejectStatus) {
	if len(b) < connectRequestSize {
		return c, RejectInvalidLength
	}
	if binary.LittleEndian.Uint16(b) != 0 {
		return c, RejectInvalidRecFmt
	}
	return connectRequest{
		QID:     binary.LittleEndian.Uint16(b[2:]),
		HRQSize: binary.LittleEndian.Uint16(b[4:]),
		HSQSize: binary.LittleEndian.Uint16(b[6:]),
		CNTLID:  binary.LittleEndian.Uint16(b[8:]),
	}, 0
}

// connectAccept is the private data of the controller's acceptance.
type connectAccept struct {
	CRQSize uint16 // receives that the controller posted
}

func (c connectAccept) bytes() []byte {
	var p [connectAcceptSize]byte
	binary.LittleEndian.PutUint16(p[2:], c.CRQSize)
	return p[:]
}

func parseConnectAccept(b []byte) (c connectAccept, err error) {
	if len(b) < 4 {
		return c, fmt.Errorf("private data of %d bytes, want %d", len(b), connectAcceptSize)
	}
	if f := binary.LittleEndian.Uint16(b); f != 0 {
		return c, fmt.Errorf("private data format (RECFMT) %d, want 0", f)
	}
	return connectAccept{CRQSize: binary.LittleEndian.Uint16(b[2:])}, nil
}

// RejectStatus is the NVMe/RDMA status in the private data of a rejection.
type RejectStatus uint16

// Statuses of a rejection.
const (
	RejectInvalidLength  RejectStatus = 1
	RejectInvalidRecFmt  RejectStatus = 2
	RejectInvalidQID     RejectStatus = 3
	RejectInvalidHSQSize RejectStatus = 4
	RejectInvalidHRQSize RejectStatus = 5
	RejectNoResources    RejectStatus = 6
	RejectInvalidIRD     RejectStatus = 7
	RejectInvalidORD     RejectStatus = 8
	RejectInvalidCNTLID  RejectStatus = 9
)

var rejectText = [...]string{
	RejectInvalidLength:  "invalid length of the private data",
	RejectInvalidRecFmt:  "invalid format (RECFMT) of the private data",
	RejectInvalidQID:     "invalid queue identifier",
	RejectInvalidHSQSize: "invalid submission queue size (HSQSIZE)",
	RejectInvalidHRQSize: "invalid receive queue size (HRQSIZE)",
	RejectNoResources:    "out of resources",
	RejectInvalidIRD:     "invalid responder resources (IRD)",
	RejectInvalidORD:     "invalid initiator depth (ORD)",
	RejectInvalidCNTLID:  "invalid controller identifier",
}

func (s RejectStatus) String() string {
	if int(s) < len(rejectText) && rejectText[s] != "" {
		return rejectText[s]
	}
	return fmt.Sprintf("status %d", uint16(s))
}

func (s RejectStatus) bytes() []byte {
	var p [connectRejectSize]byte
	binary.LittleEndian.PutUint16(p[2:], uint16(s))
	return p[:]
}

// parseReject parses the private data of a rejection with reason 28; ok is false if it isn't that of NVMe/RDMA. The
// message is padded with zeroes, so status 0 is no status.
func parseReject(b []byte) (s RejectStatus, ok bool) {
	if len(b) < connectRejectSize || binary.LittleEndian.Uint16(b) != 0 {
		return 0, false
	}
	s = RejectStatus(binary.LittleEndian.Uint16(b[2:]))
	return s, s != 0
}
