package target

import (
	"sync"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// errorLogEntries is ELPE + 1.
const errorLogEntries = 64

// errorLog is the Error Information log of a controller: a ring, allocated when the first error happens.
type errorLog struct {
	mu    sync.Mutex
	count uint64
	gone  uint64 // the part of count that was before the last reset
	ring  []nvme.ErrorEntry
}

// add enters the error with which r is answered.
func (l *errorLog) add(r *Request, st nvme.Status) {
	q := r.engine.q
	entry := nvme.ErrorEntry{
		SQID: q.qid, CID: r.Cmd.CID(), StatusPhase: uint16(st) << 1, Location: r.engine.loc,
		NSID: r.Cmd.NSID(), Specific: r.engine.detail,
	}
	r.engine.detail = 0
	if c := st.Code(); c == nvme.StatusDataTransferError || c == nvme.StatusTransientTransport {
		entry.TRTYPE = q.attr.Transport // 0 for an error not of the transport (Error Information Log Entry, byte 29)
	}
	switch {
	case r.Cmd.Opcode() == nvme.OpFabrics:
		entry.NSID = 0
	case r.engine.hasLBA:
		entry.LBA = r.engine.lba
	case q.qid != 0 && hasSLBA(r.Cmd.Opcode()):
		entry.LBA = r.Cmd.SLBA()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ring == nil {
		l.ring = make([]nvme.ErrorEntry, errorLogEntries)
	}
	l.count++
	entry.Count = l.count
	l.ring[l.count%errorLogEntries] = entry
}

// hasSLBA reports whether a command of an I/O queue names blocks in dwords 10 and 11.
func hasSLBA(op nvme.Opcode) bool {
	switch op {
	case nvme.OpRead, nvme.OpWrite, nvme.OpCompare, nvme.OpWriteZeroes, nvme.OpVerify, nvme.OpCopy,
		nvme.OpWriteUncorrectable:
		return true
	}
	return false
}

func (l *errorLog) total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// clear removes all entries. Their numbers continue.
func (l *errorLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = l.count
}

// page returns the log, newest entry first, with or without the blocks in error.
func (l *errorLog) page(blocks bool) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := make([]byte, 0, errorLogEntries*nvme.ErrorEntrySize)
	for i := range min(errorLogEntries, l.count-l.gone) {
		e := l.ring[(l.count-i)%errorLogEntries]
		if !blocks {
			e.LBA = 0
		}
		b = e.AppendTo(b)
	}
	return append(b, make([]byte, cap(b)-len(b))...)
}
