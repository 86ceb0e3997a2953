package nvme

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// TestStatusGolden reads the status of each completion in which Linux reported an error.
func TestStatusGolden(t *testing.T) {
	want := map[string]Status{
		"tcp-09c-write-zeroes: Identify (CNS 05h)":    StatusInvalidField,
		"tcp-11-admin: Property Get (property 0xc)":   StatusInvalidField,
		"tcp-01-discover: Asynchronous Event Request": StatusInternalError, // at shutdown
		"tcp-12-errors: admin command C5h":            StatusInvalidOpcode,
		"tcp-12-errors: I/O command 99h":              StatusInvalidOpcode,
		"tcp-12-errors: Read":                         StatusInternalError, // beyond the end: nvmet's mapping
		"tcp-09e-compare-fail: Compare":               StatusInvalidOpcode, // which nvmet hasn't got
		"tcp-17-bad-nqn: Connect":                     StatusConnectInvalidParameter,
	}
	got := map[string]Status{}
	for _, c := range capsules(t) {
		if c.cqe == nil || c.cqe.Status().OK() {
			continue
		}
		err := c.cqe.ErrFor(c.cmd, c.cqe.SQID())
		var se *StatusError
		if !errors.As(err, &se) {
			t.Fatalf("%s: %v", c.origin, err)
		}
		got[c.origin+": "+se.Command] = se.Status.Code()
		if !se.Status.DNR() {
			t.Errorf("%s: no DNR in %v", c.origin, err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestStatusFields(t *testing.T) {
	s := StatusInvalidField | StatusDNR | StatusMore | 2<<11
	if s.Code() != StatusInvalidField || !s.DNR() || s.CRD() != 2 || s.SCT() != 0 || s.OK() {
		t.Errorf("%#x", uint16(s))
	}
	if StatusHostPathError.SCT() != 3 || !Status(1<<14).OK() {
		t.Error("SCT")
	}
	var c Completion
	c.SetStatus(StatusInvalidField | StatusDNR)
	if c[14] != 0x04 || c[15] != 0x80 {
		t.Errorf("on the wire % x, Linux sends 04 80", c[14:])
	}
}

func TestEveryStatusHasAName(t *testing.T) {
	if len(statusNames) < 80 {
		t.Fatalf("%d names", len(statusNames))
	}
	for s, n := range statusNames {
		if n == "" || s.Code() != s {
			t.Errorf("%#x: %q", uint16(s), n)
		}
	}
	if s := Status(0x7ff | 1<<14).String(); s != "status 7ffh (do not retry)" {
		t.Error(s)
	}
}

func TestStatusErrorIs(t *testing.T) {
	err := fmt.Errorf("stage: %w", &StatusError{Status: StatusConnectBusy | StatusDNR})
	if !errors.Is(err, StatusConnectBusy) || errors.Is(err, StatusInvalidField) || !errors.Is(err, StatusConnectBusy|StatusDNR) {
		t.Error("Is compares by code")
	}
	if !errors.Is(fmt.Errorf("x: %w", StatusInvalidField), StatusInvalidField) {
		t.Error("a status is an error by itself")
	}
}

func TestStatusErrorText(t *testing.T) {
	var connect, read, zeroes, flush, dsm, log Command
	connect.SetConnect(1, 31, 0, 0)
	read.SetIO(OpRead, 7, 0, 1, 0)
	zeroes.SetIO(OpWriteZeroes, 7, 1<<32, MaxBlocks, ControlDEAC)
	flush.SetFlush(7)
	dsm.SetDSM(7, 1, DSMDeallocate)
	log.SetGetLogPage(GetLogPage{LID: LogSMART, NSID: NSIDAll, Length: 512})
	for _, c := range []struct {
		cmd    *Command
		qid    uint16
		status Status
		result uint64
		want   []string
	}{
		{&connect, 1, StatusConnectInvalidParameter | StatusDNR, uint64(InvalidData(256)), []string{"Connect: connect invalid parameters (do not retry): subsystem NQN", "discovery service"}},
		{&connect, 0, StatusConnectInvalidHost, 0, []string{"connect invalid host", "doesn't admit"}},
		{&read, 1, StatusLBAOutOfRange, 0, []string{"nvme: Read on namespace 7, block 0: LBA out of range", "beyond the namespace"}},
		{&zeroes, 1, StatusWriteFault, 0, []string{"nvme: Write Zeroes on namespace 7, blocks 4294967296 to 4295032831: write fault"}},
		{&flush, 1, StatusInternalError, 0, []string{"nvme: Flush on namespace 7: "}},
		{&dsm, 1, StatusInternalError, 0, []string{"nvme: Dataset Management on namespace 7: "}},
		{&read, 1, 0x182, 0, []string{"attempted write to read only range"}},
		{&log, 0, StatusInvalidLogPage, 0, []string{"nvme: Get Log Page (SMART / Health Information): invalid log page"}},
	} {
		var q Completion
		q.SetStatus(c.status)
		q.SetResult(c.result)
		text := q.ErrFor(c.cmd, c.qid).Error()
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%q doesn't contain %q", text, w)
			}
		}
	}
}

func TestCommandNames(t *testing.T) {
	for op := range 256 {
		var c Command
		c.SetOpcode(Opcode(op))
		for fc := range 10 {
			c.SetFCType(FCType(fc))
			if c.Name(0) == "" || c.Name(1) == "" {
				t.Fatalf("opcode %#x has no name", op)
			}
		}
	}
}
