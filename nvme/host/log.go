package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	// maxLogPiece bounds how much of a log page one command reads, even if the controller allows more (MDTS).
	maxLogPiece = 64 << 10
	// maxShortLog is how much that is at most if NUMD has 12 bits: without extended data (LPA bit 2).
	maxShortLog = 4 << 12
)

// logPiece returns how much of a log page one command reads, and whether further commands can read the rest (LPA
// bit 2, which every discovery controller supports, whatever it reports).
func (c *Controller) logPiece() (n int, more bool) {
	if more = c.identity.LPA&nvme.LPAExtendedData != 0 || c.discovery(); more {
		return min(c.limits.MaxTransfer, maxLogPiece), true
	}
	return min(c.limits.MaxTransfer, maxShortLog), false
}

// ReadLog fills b with the log page that p names, starting at p.Offset; p.Length is ignored. A long page is read in
// pieces if the controller supports that, otherwise by one command. The asynchronous event of the page is retained
// until the last piece is read, and beyond that if p.RAE is set.
func (c *Controller) ReadLog(ctx context.Context, p nvme.GetLogPage, b []byte) error {
	if len(b)%4 != 0 || p.Offset%4 != 0 {
		return fmt.Errorf("nvme: %s: %w: offset %d and length %d must be multiples of 4", p.LID, ErrRange, p.Offset, len(b))
	}
	piece, more := c.logPiece()
	if !more && (len(b) > piece || p.Offset != 0) {
		return fmt.Errorf("nvme: %s, %d bytes at %d: %w: it reads at most %d, from the beginning", p.LID, len(b), p.Offset, ErrUnsupported, piece)
	}
	retain := p.RAE
	for len(b) > 0 {
		n := min(len(b), piece)
		p.Length = uint32(n)
		p.RAE = retain || n < len(b)
		var cmd nvme.Command
		cmd.SetGetLogPage(p)
		if _, err := c.command(ctx, &cmd, b[:n]); err != nil {
			return err
		}
		b = b[n:]
		p.Offset += uint64(n)
	}
	return nil
}

// SMART reads the SMART / Health Information log of the controller.
func (c *Controller) SMART(ctx context.Context) (*nvme.SMARTLog, error) {
	b := make([]byte, nvme.SMARTLogSize)
	if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogSMART, NSID: nvme.NSIDAll}, b); err != nil {
		return nil, err
	}
	p := new(nvme.SMARTLog)
	if err := p.Parse(b); err != nil {
		return nil, err
	}
	return p, nil
}

// ErrorLog reads the entries of the Error Information log, newest first. Of a log that can't be read in pieces and is
// longer than what one command reads, it reads the newest ones.
func (c *Controller) ErrorLog(ctx context.Context) ([]nvme.ErrorEntry, error) {
	entries := int(c.identity.ELPE) + 1
	if piece, more := c.logPiece(); !more {
		entries = min(entries, piece/nvme.ErrorEntrySize)
	}
	b := make([]byte, entries*nvme.ErrorEntrySize)
	if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogError, NSID: nvme.NSIDAll, RAE: true}, b); err != nil {
		return nil, err
	}
	var all []nvme.ErrorEntry
	for ; len(b) > 0; b = b[nvme.ErrorEntrySize:] {
		var e nvme.ErrorEntry
		if err := e.Parse(b); err != nil {
			return nil, err
		}
		// An error that occurs between two reads moves the others, and one of them is then read twice.
		known := func(o nvme.ErrorEntry) bool { return o.Count == e.Count }
		if e.Count != 0 && !slices.ContainsFunc(all, known) {
			all = append(all, e)
		}
	}
	return all, nil
}

// maxPersistent bounds how much of its Persistent Event log a controller can make the host remember.
const maxPersistent = 64 << 20

// PersistentEvents reads the Persistent Event log, newest event first. It establishes the controller's reporting
// context, and releases it.
func (c *Controller) PersistentEvents(ctx context.Context) (*nvme.PersistentLogHeader, []nvme.PersistentEvent, error) {
	if c.identity.LPA&nvme.LPAPersistent == 0 {
		return nil, nil, fmt.Errorf("nvme: %s: %w (LPA bit 4)", nvme.LogPersistent, ErrUnsupported)
	}
	read := func(a nvme.PersistentAction, from uint64, b []byte) error {
		return c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogPersistent, NSID: nvme.NSIDAll, LSP: uint8(a), RAE: true, Offset: from}, b)
	}
	// An existing context prevents establishing another, and shows an old log.
	b := make([]byte, nvme.PersistentHeaderSize)
	if err := read(nvme.PersistentRelease, 0, b); err != nil {
		return nil, nil, err
	}
	if err := read(nvme.PersistentEstablish, 0, b); err != nil {
		return nil, nil, err
	}
	h := new(nvme.PersistentLogHeader)
	rest, err := restOfPersistent(h, b, read)
	if given := read(nvme.PersistentRelease, 0, b); err == nil {
		err = given
	}
	if err != nil {
		return nil, nil, err
	}
	events := make([]nvme.PersistentEvent, min(uint64(h.Events), h.Length/nvme.PersistentEventHead))
	for i := range events {
		if rest, err = events[i].Parse(rest); err != nil {
			return nil, nil, fmt.Errorf("event %d of %d: %w", i, h.Events, err)
		}
	}
	return h, events, nil
}

// restOfPersistent reads what follows the header of a Persistent Event log. head is that header, which it parses
// into h.
func restOfPersistent(h *nvme.PersistentLogHeader, head []byte, read func(a nvme.PersistentAction, from uint64, b []byte) error) ([]byte, error) {
	if err := h.Parse(head); err != nil {
		return nil, err
	}
	if h.Length < nvme.PersistentHeaderSize || h.Length > maxPersistent {
		return nil, fmt.Errorf("nvme: %s: %w: its length is %d bytes", nvme.LogPersistent, ErrController, h.Length)
	}
	rest := make([]byte, (h.Length-nvme.PersistentHeaderSize+3)/4*4)
	if err := read(nvme.PersistentRead, nvme.PersistentHeaderSize, rest); err != nil {
		return nil, err
	}
	// The context may be lost, and another begun, between the commands that read a long log.
	again := new(nvme.PersistentLogHeader)
	if err := read(nvme.PersistentRead, 0, head); err != nil {
		return nil, err
	}
	if err := again.Parse(head); err != nil {
		return nil, err
	}
	if again.Generation != h.Generation {
		return nil, fmt.Errorf("nvme: %s: its reporting context was lost while it was read (generation %d, then %d): read it again",
			nvme.LogPersistent, h.Generation, again.Generation)
	}
	return rest, nil
}

const (
	anaTries       = 10       // how often to read an ANA log that keeps changing
	anaChangeCount = 8        // length of the change count at its beginning, in bytes
	maxANA         = 16 << 20 // bounds what a controller can make the host remember
)

// ErrANAUnstable is the cause if the ANA log changed each time it was read.
var ErrANAUnstable = errors.New("the ANA log keeps changing")

// ANA reads the Asymmetric Namespace Access log. It retains the event. A log that is read in several pieces is read
// again if its change count shows that it changed in the meantime.
func (c *Controller) ANA(ctx context.Context) (*nvme.ANALog, error) {
	id := &c.identity
	if id.CMIC&nvme.CMICANA == 0 {
		return nil, fmt.Errorf("nvme: %s: %w (CMIC bit 3)", nvme.LogANA, ErrUnsupported)
	}
	n := cmp.Or(id.MNAN, id.NN)
	most := int(min(nvme.ANALogSize(id.NANAGRPID, n), maxANA))
	b, err := c.readANA(ctx, most)
	if err != nil {
		return nil, err
	}
	if nvme.ANALogLength(b) > uint64(most) {
		return nil, fmt.Errorf("nvme: %s: %w: it has more than %d bytes (NANAGRPID is %d, MNAN or NN %d)", nvme.LogANA, ErrController, most, id.NANAGRPID, n)
	}
	p := new(nvme.ANALog)
	if err := p.Parse(b); err != nil {
		return nil, err
	}
	return p, nil
}

// readANA reads the ANA log, which has no more than most bytes, until all of it belongs to the change count at its
// beginning. To check that, it reads the whole first piece again, since Linux's target refuses reads that are
// shorter than its log. If the log has become shorter, its former end is refused: that is a change, too.
func (c *Controller) readANA(ctx context.Context, most int) ([]byte, error) {
	piece, _ := c.logPiece()
	again := make([]byte, min(piece, most))
	for range anaTries {
		b, err := c.readANAOnce(ctx, most)
		if len(b) <= len(again) || err != nil && !refused(err) {
			return b, err
		}
		if err := c.ReadLog(ctx, anaPage(0), again); err != nil {
			return nil, err
		}
		if bytes.Equal(again[:anaChangeCount], b[:anaChangeCount]) {
			return b, err
		}
	}
	return nil, fmt.Errorf("nvme: %s: %w: its change count changed %d times", nvme.LogANA, ErrANAUnstable, anaTries)
}

// readANAOnce reads the ANA log in pieces, up to most bytes, and only as far as the log goes: it is seldom as long as
// it may be, and an offset beyond its end is an error. With an error it returns what it has asked for.
func (c *Controller) readANAOnce(ctx context.Context, most int) (b []byte, err error) {
	piece, _ := c.logPiece()
	for err == nil && len(b) < most && nvme.ANALogLength(b) > uint64(len(b)) {
		n := len(b)
		b = append(b, make([]byte, min(piece, most-n))...)
		err = c.ReadLog(ctx, anaPage(n), b[n:])
	}
	return b, err
}

// anaPage selects the ANA log from an offset.
func anaPage(from int) nvme.GetLogPage {
	return nvme.GetLogPage{LID: nvme.LogANA, RAE: true, Offset: uint64(from)}
}
