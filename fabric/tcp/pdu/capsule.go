package pdu

import "github.com/nvme-anywhere/nvmeof/nvme"

// Header lengths of the capsule PDUs, in bytes.
const (
	CapsuleCmdSize  = HeaderSize + nvme.CommandSize
	CapsuleRespSize = HeaderSize + nvme.CompletionSize
)

// These lengths are the specification's (sections 3.6.2.6 and 3.6.2.7).
var (
	_ [72 - CapsuleCmdSize]struct{}
	_ [CapsuleCmdSize - 72]struct{}
	_ [24 - CapsuleRespSize]struct{}
	_ [CapsuleRespSize - 24]struct{}
)

// OffCID is the offset of the command identifier in a CapsuleResp.
const OffCID = HeaderSize + 12

// CapsuleCmd is a command capsule to send; in-capsule data follows it at Header.PDO. In a received one, view the command
// in place with nvme.CommandAt, after the common header.
type CapsuleCmd struct {
	Header
	Cmd nvme.Command
}

// Append appends the PDU up to its data.
func (p *CapsuleCmd) Append(b []byte) []byte {
	return p.end(append(p.Header.Append(b), p.Cmd[:]...), len(b))
}

// CapsuleResp is a response capsule to send. In a received one, view the completion in place with nvme.CompletionAt.
type CapsuleResp struct {
	Header
	CQE nvme.Completion
}

// Append appends the PDU.
func (p *CapsuleResp) Append(b []byte) []byte {
	return p.end(append(p.Header.Append(b), p.CQE[:]...), len(b))
}
