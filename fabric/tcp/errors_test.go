package tcp

import (
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
)

// TestErrors checks what errors.Is and errors.As see.
func TestErrors(t *testing.T) {
	var err error = &ProtocolError{PDU: pdu.TypeH2CData, Cause: &pdu.FieldError{FES: pdu.FESOutOfRange, Field: "DATAO"}}
	var fe *pdu.FieldError
	if !errors.Is(err, ErrProtocol) || !errors.As(err, &fe) || fe.FES != pdu.FESOutOfRange {
		t.Errorf("%v", err)
	}
	err = &ConnError{Stage: "receive", Err: &TerminatedError{FES: pdu.FESSequence}}
	if !errors.Is(err, ErrTerminated) {
		t.Errorf("%v", err)
	}
}
