package tcp

import (
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// offence is what a hostile controller sends for a command: valid PDUs, and then an invalid one.
type offence struct {
	name string
	op   nvme.Opcode
	size int // of the command's data; a write of up to 4 KiB has it in its capsule
	good func(p *raw, cid uint16) []byte
	bad  func(p *raw, cid uint16) []byte
	fes  pdu.FES
	fei  uint32
}

// c2h returns a C2HData PDU with n bytes at offset off.
func (p *raw) c2h(cid uint16, flags uint8, off uint32, n int) []byte {
	return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData, Flags: flags}, CCCID: cid, DATAO: off}, make([]byte, n))
}

// TestHostOffences: whenever a controller breaks the rules for a command, the host ends the connection with the
// terminate request that names the fault, and the command with an error. Data out of order, after the last, or for a
// command that has none is a sequence error, and so is an R2T out of order; data beyond the buffer is out of range
// (NVMe/TCP, section 3.3.2).
func TestHostOffences(t *testing.T) {
	const size = 16 << 10
	read, write := nvme.OpRead, nvme.OpWrite
	none := func(*raw, uint16) []byte { return nil }
	for _, c := range []offence{
		{"R2T for a CCCID that isn't outstanding", write, size, none,
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid + 1, R2TL: 512}) }, pdu.FESInvalidHeader, pdu.OffCCCID},
		{"R2T for an older command of the slot", write, size, none,
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid - 64, R2TL: 512}) }, pdu.FESInvalidHeader, pdu.OffCCCID},
		{"R2T for data that came in the capsule", write, 4096, none,
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: 4096}) }, pdu.FESInvalidHeader, pdu.OffCCCID},
		{"R2T for what has just been sent", write, size,
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: 4096}) },
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: 4096}) }, pdu.FESSequence, 0},
		{"R2T that overlaps the one before", write, size,
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: 4096}) },
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TO: 2048, R2TL: 4096}) }, pdu.FESSequence, 0},
		{"R2T that reaches beyond the end", write, size,
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: 4096}) },
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TO: 4096, R2TL: size - 4095}) }, pdu.FESInvalidHeader, pdu.OffDATAL},
		{"R2T after the last", write, size,
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: size}) },
			func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TO: size, R2TL: 1}) }, pdu.FESInvalidHeader, pdu.OffDATAL},
		{"R2T with data", write, size, none,
			func(p *raw, cid uint16) []byte {
				b := p.r2t(pdu.R2T{CCCID: cid, R2TL: 512})
				return append(put32(b, pdu.OffPLEN, uint32(len(b)+4)), 1, 2, 3, 4)
			}, pdu.FESInvalidHeader, pdu.OffPLEN},

		{"data again", read, size,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 0, 4096) },
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 0, 4096) }, pdu.FESSequence, 0},
		{"data that overlap", read, size,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 0, 4096) },
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 2048, 4096) }, pdu.FESSequence, 0},
		{"data that come too early", read, size,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 0, 4096) },
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 8192, 4096) }, pdu.FESSequence, 0},
		{"data after all", read, size,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, pdu.FlagLast, 0, size) },
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, size, 4) }, pdu.FESSequence, 0},
		{"data after the last", read, size,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, pdu.FlagLast, 0, 4096) },
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 4096, 4096) }, pdu.FESSequence, 0},
		{"DATAO that wraps", read, size, none,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 0xfffffffc, 8) }, pdu.FESOutOfRange, 0},
		{"no data", read, size, none,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 0, 0) }, pdu.FESInvalidHeader, pdu.OffPLEN},
		{"data of 4 GiB", read, size, none,
			func(p *raw, cid uint16) []byte {
				b := put32(p.c2h(cid, 0, 0, 4096), pdu.OffPLEN, 0xffffffff)
				return put32(b, pdu.OffDATAL, 0xffffffff-uint32(b[offPDO]))
			}, pdu.FESOutOfRange, 0},
		{"PLEN of less than the header", read, size, none,
			func(p *raw, cid uint16) []byte { return put32(p.c2h(cid, 0, 0, 4096), pdu.OffPLEN, pdu.DataSize-1) }, pdu.FESInvalidHeader, pdu.OffPLEN},
		{"PLEN of nothing", read, size, none,
			func(p *raw, cid uint16) []byte { return put32(p.resp(cid, 0), pdu.OffPLEN, 0) }, pdu.FESInvalidHeader, pdu.OffPLEN},
		{"HLEN of more than the header", read, size, none,
			func(p *raw, cid uint16) []byte {
				b := p.c2h(cid, 0, 0, 4096)
				b[offHLEN] += 4
				return b
			}, pdu.FESInvalidHeader, offHLEN},
		{"PDO within the header", read, size, none,
			func(p *raw, cid uint16) []byte {
				b := p.c2h(cid, 0, 0, 4096)
				b[offPDO] = 4
				return b
			}, pdu.FESInvalidHeader, offPDO},
		{"PDO behind the data", read, size, none,
			func(p *raw, cid uint16) []byte {
				b := p.c2h(cid, 0, 0, 16)
				b[offPDO] = 252
				return b
			}, pdu.FESInvalidHeader, pdu.OffPLEN},
		{"SUCCESS without LAST_PDU", read, size, none,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, pdu.FlagSuccess, 0, size) }, pdu.FESInvalidHeader, pdu.OffFlags},
		{"a header digest that wasn't agreed", read, size, none,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, pdu.FlagHDGST, 0, 4096) }, pdu.FESInvalidHeader, pdu.OffFlags},
		{"a data digest that wasn't agreed", read, size, none,
			func(p *raw, cid uint16) []byte { return p.c2h(cid, pdu.FlagDDGST, 0, 4096) }, pdu.FESInvalidHeader, pdu.OffFlags},
	} {
		t.Run(c.name, func(t *testing.T) { c.commit(t, HostConfig{}) })
	}
}

// TestHostOffendedDigests: headers with a wrong digest, or without one, are refused. A damaged header is reported as a
// header digest error, whatever it says.
func TestHostOffendedDigests(t *testing.T) {
	const size, wrong = 16 << 10, 0x12345678
	none := func(*raw, uint16) []byte { return nil }
	bare := func(b []byte) []byte { // without the flag and the digest
		b[pdu.OffFlags] &^= pdu.FlagHDGST
		return b
	}
	for _, c := range []offence{
		{"R2T", nvme.OpWrite, size, none, func(p *raw, cid uint16) []byte {
			return put32(p.r2t(pdu.R2T{CCCID: cid, R2TL: size}), pdu.R2TSize, wrong)
		}, pdu.FESHeaderDigest, wrong},
		{"data", nvme.OpRead, size, none, func(p *raw, cid uint16) []byte {
			return put32(p.c2h(cid, 0, 0, 4096), pdu.DataSize, wrong)
		}, pdu.FESHeaderDigest, wrong},
		{"R2T without", nvme.OpWrite, size, none, func(p *raw, cid uint16) []byte {
			return bare(p.r2t(pdu.R2T{CCCID: cid, R2TL: size}))
		}, pdu.FESInvalidHeader, pdu.OffFlags},
		{"data without", nvme.OpRead, size, none, func(p *raw, cid uint16) []byte {
			return bare(p.c2h(cid, 0, 0, 4096))
		}, pdu.FESInvalidHeader, pdu.OffFlags},
		{"data without its own", nvme.OpRead, size, none, func(p *raw, cid uint16) []byte {
			p.digests &^= pdu.DigestData
			return p.c2h(cid, 0, 0, 4096)
		}, pdu.FESInvalidHeader, pdu.OffFlags},
	} {
		t.Run(c.name, func(t *testing.T) { c.commit(t, HostConfig{HeaderDigest: true, DataDigest: true}) })
	}
}

// commit makes a controller commit the offence, and checks how the host ends.
func (c *offence) commit(t *testing.T, cfg HostConfig) {
	d := dialRaw(t, cfg, goodResp)
	r, done, cid := d.start(ioCommand(c.op, 0, c.size), make([]byte, c.size))
	good := c.good(d.ctrl, cid)
	d.ctrl.send(good)
	for n := askedFor(t, good); n > 0; {
		h := pdu.HeaderAt(d.ctrl.expect(pdu.TypeH2CData))
		n -= h.DataLen()
	}
	sent := c.bad(d.ctrl, cid)
	d.ctrl.send(sent)
	d.ctrl.terminated(c.fes, c.fei, sent)
	_ = d.ctrl.Close()
	d.wait(done)
	var fault *pdu.FieldError
	if !errors.Is(r.Err, ErrProtocol) || !errors.As(r.Err, &fault) || fault.FES != c.fes {
		t.Errorf("the command ends with %v", r.Err)
	}
	<-d.gone
	if n := d.tr.Counters().ProtocolErrors.Load(); n != 1 {
		t.Errorf("%d protocol errors are counted", n)
	}
}

// askedFor returns how many bytes the valid PDUs ask the host for.
func askedFor(t *testing.T, b []byte) int {
	t.Helper()
	if len(b) == 0 || pdu.HeaderAt(b).Type != pdu.TypeR2T {
		return 0
	}
	r, err := pdu.ParseR2T(b)
	if err != nil {
		t.Fatal(err)
	}
	return int(r.R2TL)
}

// TestHostAnswersForEnded: what a controller sends for a command that it has answered names no command, even while
// nothing else uses that command's slot.
func TestHostAnswersForEnded(t *testing.T) {
	const size = 4096
	for name, c := range map[string]struct {
		answer func(p *raw, cid uint16) []byte
		fei    uint32
	}{
		"data":     {func(p *raw, cid uint16) []byte { return p.c2h(cid, 0, 0, size) }, pdu.OffCCCID},
		"R2T":      {func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: size}) }, pdu.OffCCCID},
		"response": {func(p *raw, cid uint16) []byte { return p.resp(cid, 0) }, pdu.OffCID},
	} {
		t.Run(name, func(t *testing.T) {
			d := dialRaw(t, HostConfig{}, goodResp)
			_, done, cid := d.start(ioCommand(nvme.OpRead, 0, size), make([]byte, size))
			d.ctrl.send(append(d.ctrl.c2h(cid, pdu.FlagLast, 0, size), d.ctrl.resp(cid, 0)...))
			d.wait(done)
			sent := c.answer(d.ctrl, cid)
			d.ctrl.send(sent)
			d.ctrl.terminated(pdu.FESInvalidHeader, c.fei, sent)
			_ = d.ctrl.Close()
			<-d.gone
		})
	}
}

// TestHostDataForEnded: data for a read that has been answered, whose memory belongs to its owner again, isn't taken as
// data for the next command of its slot.
func TestHostDataForEnded(t *testing.T) {
	const size = 4096
	d := dialRaw(t, HostConfig{}, goodResp)
	_, done, cid := d.start(ioCommand(nvme.OpRead, 0, size), make([]byte, size))
	d.ctrl.send(append(d.ctrl.c2h(cid, pdu.FlagLast, 0, size), d.ctrl.resp(cid, 0)...))
	d.wait(done)
	d.mu.Lock()
	d.free = append(d.free, cid+64) // the next identifier of that slot
	d.mu.Unlock()
	r, done, next := d.start(ioCommand(nvme.OpRead, 0, size), make([]byte, size))
	if next != cid+64 {
		t.Fatalf("CID %#x after %#x", next, cid)
	}
	sent := d.ctrl.c2h(cid, 0, 0, size)
	d.ctrl.send(sent)
	d.ctrl.terminated(pdu.FESInvalidHeader, pdu.OffCCCID, sent)
	_ = d.ctrl.Close()
	d.wait(done)
	if !errors.Is(r.Err, ErrProtocol) {
		t.Errorf("the command ended with %v, want %v", r.Err, ErrProtocol)
	}
	<-d.gone
}
