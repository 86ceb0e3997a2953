package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// The set-up is a sequence of swaps: the client writes a field of fixed size, then the server writes its own. This is
// the protocol of versions 5.70 to 6.27; later ones also exchange a structure in their machine's layout, but not with
// an older version, which is why we claim to be one.

const (
	version     = "6.06" // the version that we claim
	versionSize = 16

	done = "done\x00"
)

// wire is the TCP connection.
type wire struct {
	io.ReadWriter
	client bool
}

// swap sends mine and returns the other side's, which has the same size.
func (w wire) swap(what string, mine []byte) (theirs []byte, err error) {
	theirs = make([]byte, len(mine))
	send := func() error {
		_, err := w.Write(mine)
		return err
	}
	receive := func() error {
		_, err := io.ReadFull(w, theirs)
		return err
	}
	steps := []func() error{receive, send}
	if w.client {
		steps = []func() error{send, receive}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, fmt.Errorf("exchange of %s: %w", what, err)
		}
	}
	return theirs, nil
}

// swapNumber swaps 4 bytes, big-endian.
func (w wire) swapNumber(what string, mine int) (int, error) {
	b, err := w.swap(what, binary.BigEndian.AppendUint32(nil, uint32(mine)))
	if err != nil {
		return 0, err
	}
	return int(int32(binary.BigEndian.Uint32(b))), nil
}

// swapMTU swaps the codes of path MTUs, as a digit, and returns the lower one.
func (w wire) swapMTU(mine verbs.MTU) (verbs.MTU, error) {
	b, err := w.swap("path MTU", []byte{'0' + byte(mine), 0})
	if err != nil {
		return 0, err
	}
	theirs := verbs.MTU(b[0] - '0')
	if theirs.Bytes() == 0 {
		return 0, fmt.Errorf("the other side's path MTU is %q: want 1 to 5", b)
	}
	return min(mine, theirs), nil
}

// keys are what one side knows about the other: its queue pair and its memory.
type keys struct {
	rc.Peer
	reads uint16 // READs and atomics that it accepts at once
	rkey  uint32
	addr  uint64
}

// swapKeys swaps keys; in the set-up both sides do so again whenever one must wait for the other. what says for what.
func (w wire) swapKeys(what string, mine keys) (keys, error) {
	b, err := w.swap(what, mine.text())
	if err != nil {
		return keys{}, err
	}
	return parseKeys(b)
}

// text returns LID (0 on Ethernet), reads, queue pair number, first PSN, R_Key, address, GID and the number of a shared
// receive queue (0), all in hexadecimal, and a zero byte.
func (k keys) text() []byte {
	b := fmt.Appendf(nil, "%04x:%04x:%06x:%06x:%08x:%016x:", 0, k.reads, k.QPN, k.PSN, k.rkey, k.addr)
	for _, c := range k.GID {
		b = fmt.Appendf(b, "%02x:", c)
	}
	return fmt.Appendf(b, "%08x:\x00", 0)
}

func parseKeys(b []byte) (k keys, err error) {
	const fixed = 6 // before the GID
	words := strings.Split(string(b), ":")
	if len(words) < fixed+len(k.GID) {
		return k, fmt.Errorf("queue pair and memory of the other side %q: want %d fields", b, fixed+len(k.GID)+1)
	}
	number := func(i, bits int) (v uint64) {
		v, e := strconv.ParseUint(words[i], 16, bits)
		if e != nil && err == nil {
			err = fmt.Errorf("queue pair and memory of the other side %q, field %d: %w", b, i, e)
		}
		return v
	}
	k.reads = uint16(number(1, 16))
	k.QPN, k.PSN = uint32(number(2, 24)), uint32(number(3, 24))
	k.rkey, k.addr = uint32(number(4, 32)), number(5, 64)
	for i := range k.GID {
		k.GID[i] = byte(number(fixed+i, 8))
	}
	if err == nil && k.GID == (verbs.GID{}) {
		err = errors.New("the other side gives no GID: start it with -x and the index of its IP address")
	}
	return k, err
}

// report is a client's result: operations of size bytes, and how fast they were.
type report struct {
	size, count   uint64
	peak, average float64 // MiB/s
	rate          float64 // million operations/s
}

// swapReport sends the result to the server, which has none to send.
func (w wire) swapReport(mine report) (theirs report, err error) {
	for _, f := range []struct {
		mine   uint64
		theirs *uint64
	}{{mine.size, &theirs.size}, {mine.count, &theirs.count}} {
		b, err := w.swap("results", binary.BigEndian.AppendUint64(nil, f.mine))
		if err != nil {
			return theirs, err
		}
		*f.theirs = binary.BigEndian.Uint64(b)
	}
	for _, f := range []struct {
		mine   float64
		theirs *float64
	}{{mine.peak, &theirs.peak}, {mine.average, &theirs.average}, {mine.rate, &theirs.rate}} {
		b, err := w.swap("results", binary.BigEndian.AppendUint64(nil, math.Float64bits(f.mine)))
		if err != nil {
			return theirs, err
		}
		*f.theirs = math.Float64frombits(binary.BigEndian.Uint64(b))
	}
	return theirs, nil
}

// finish ends the set-up's connection: each side says that it is done. perftest doesn't read that and may have closed
// the connection already; if we closed it first, perftest's own message could be lost.
func (w wire) finish(mine keys) error {
	if _, err := w.swapKeys("word of the end", mine); err != nil {
		return err
	}
	if _, err := w.Write([]byte(done)); err != nil {
		return fmt.Errorf("end of the exchange: %w", err)
	}
	_, _ = io.ReadFull(w, make([]byte, len(done)))
	return nil
}
