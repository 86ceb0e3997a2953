package tcp

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// TestAcceptExplained: an error for lack of descriptors says which limit to raise: the process's or the system's.
func TestAcceptExplained(t *testing.T) {
	accept := func(err error) error { return &net.OpError{Op: "accept", Err: err} }
	for errno, remedy := range map[unix.Errno]string{
		unix.EMFILE: "LimitNOFILE", unix.ENFILE: "fs.file-max", unix.ENOSPC: "fs.epoll.max_user_watches",
	} {
		if err := explained(accept(errno)); !errors.Is(err, errno) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%v, want it to name %s", err, remedy)
		}
	}
	if err := accept(unix.ENOMEM); explained(err) != err { //nolint:errorlint // the very same
		t.Error(explained(err))
	}
}
