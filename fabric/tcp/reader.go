package tcp

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	// chunkSize is the size of a connection's read buffer (the chunk): the most that one receive
	// call takes besides data that goes straight to its place.
	chunkSize = 128 << 10
	// directMin is the length of data from which a PDU counts as large. After a large PDU, receive
	// calls read only little into the chunk, from where data has to be copied: the next PDU will
	// probably be large too.
	directMin = 16 << 10
	// directTail is how much they read into it: enough for the headers that follow.
	directTail = 4 << 10
	// maxReadIov is how many pieces one receive call fills.
	maxReadIov = 64
)

// pduHandler is the half of a connection that understands PDUs. All calls come from inside
// reader.run.
type pduHandler interface {
	// batch begins a batch: the bytes that one receive call returned.
	batch()
	// flush ends the batch: everything that could be handled has been, and the reader is about to
	// receive again, or to wait. It reports whether something was sent successfully. An error ends
	// the connection.
	flush() (sent bool, err error)
	// header handles a PDU's header, checked against the rules and its digest; b holds its bytes
	// (for a terminate request, the whole PDU) and is valid during the call. If data follows, the
	// handler says where it belongs by reader.place; data without a place is dropped.
	header(h pdu.Header, b []byte) error
	// data says that the data of the PDU is in place, and whether its digest was right.
	data(h pdu.Header, ok bool) error
	// interrupted is called when the read deadline has passed. An error ends the connection.
	interrupted() error
}

// readerState is what the reader expects next.
type readerState uint8

const (
	wantHeader readerState = iota
	wantData               // padding, then data
	wantDigest
)

// reader receives PDUs. It runs inside one WhenReadable for as long as nothing interrupts it:
// when a receive call leaves the socket empty, and says so, it goes straight back to waiting for the
// next event and saves the call that would only return EAGAIN. A reset that arrived together with the
// data makes no further event, so the reader does this only if something was sent since, which a reset
// connection would refuse.
type reader struct {
	conn  socket.Conn
	h     pduHandler
	rules pdu.Rules
	tally tally

	buf  []byte
	r, w int // buf[r:w] is unparsed

	state   readerState
	large   bool       // the last data was large
	cur     pdu.Header // the PDU whose data is arriving
	padding int        // bytes between header and data still to come
	left    int        // bytes of data still to come
	dst     [][]byte   // where they go; elements are consumed as the bytes arrive
	next    int        // index of the first of dst that isn't full
	crc     uint32     // of the data so far

	onDemand bool // pages of dst may be missing
	missed   bool // a page was missing

	err     error
	offence [pdu.MaxTermData]byte // the header at fault, for a terminate request
	nOffend int
	drained bool // the socket was empty after the last receive call

	attendant *duty.Attendant // stands for the goroutine in run; nil if it does no tasks for others
	onDuty    bool
	errand    bool // run is to do a task that is offered
	meantime  int  // bytes to receive, if they are here, before the next errand

	look    looker
	stopped atomic.Bool // interrupt was called, and resume wasn't

	// expect, which only a target sets, is told of each command that a receive call returned, if there are several,
	// before the first of them is handled. It may be nil.
	expect func(*nvme.Command)

	tap    Tap // may be nil
	tapped [][]byte

	poll  func() bool
	parts int // of iov that the last receive call was given
	iov   [maxReadIov]unix.Iovec
}

// meantimeBytes is how many available bytes are received between two errands: a task may be offered again each time it
// is done, and must not keep the reader from receiving.
const meantimeBytes = 1 << 20

func newReader(c socket.Conn, h pduHandler, self pdu.Role, busyPoll time.Duration) *reader {
	r := &reader{conn: c, h: h, buf: make([]byte, chunkSize), dst: make([][]byte, 0, 8)}
	r.look = looker{longest: busypoll.Longest(busyPoll), atWork: &atWork}
	r.rules = pdu.Rules{Self: self}
	r.poll = r.pollOnce
	return r
}

// errReplaced says that another goroutine has taken over as the reader.
var errReplaced = errors.New("tcp: another goroutine reads")

// run receives until the connection ends and returns the reason: io.EOF if the peer closed it. After
// errReplaced the caller must touch nothing of the connection.
func (r *reader) run() error {
	err := r.readAll()
	if !errors.Is(err, errReplaced) {
		r.leave()
	}
	return err
}

func (r *reader) readAll() error {
	for {
		err := r.conn.WhenReadable(r.poll)
		if err == nil && r.errand {
			r.errand = false
			r.drained = false // WhenReadable forgets an edge that arrived meanwhile
			if !r.attendant.Work() {
				return errReplaced
			}
			r.meantime = meantimeBytes
			continue
		}
		if err == nil {
			return r.err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := r.h.interrupted(); err != nil {
			return err
		}
		// WhenReadable forgets an edge that arrived meanwhile: receive before waiting again.
		r.drained = false
	}
}

// pollOnce is called by WhenReadable, first at once and then after each wait. It returns false to wait.
func (r *reader) pollOnce() (over bool) {
	r.look.end()
	if r.attendant != nil && !r.onDuty {
		r.onDuty = true
		r.attendant.Arrive()
	}
	over = r.receiveAll()
	if !over {
		r.leave()
	}
	return over
}

// leave goes off duty.
func (r *reader) leave() {
	if r.onDuty {
		r.onDuty = false
		r.attendant.Leave()
	}
}

// offered reports whether a task is offered to the reader's goroutine; run then does it.
func (r *reader) offered() bool {
	r.errand = r.onDuty && duty.Offered()
	if r.errand {
		r.look.end()
	}
	return r.errand
}

// receiveAll receives until nothing is left, and returns false, or until there is a reason to leave WhenReadable, and
// returns true.
func (r *reader) receiveAll() bool {
	for {
		sent, err := r.h.flush()
		if r.err = err; err != nil || (r.meantime <= 0 || r.drained) && r.offered() {
			return true
		}
		n, errno := r.await(sent)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return r.offered()
		case errno != 0:
			r.err = errno
			return true
		case n == 0:
			r.err = io.EOF
			return true
		}
		if r.tap != nil {
			r.tapped = pieces(r.tapped, r.iov[:r.parts])
			r.tap.Received(r.tapped, n)
		}
		r.h.batch()
		r.tally.bytes += uint64(n)
		r.meantime -= n
		r.took(n)
		if r.err = r.consume(); r.err != nil {
			return true
		}
	}
}

// interrupt makes the reader call the handler's interrupted soon. Any goroutine may call it.
func (r *reader) interrupt() {
	r.stopped.Store(true)
	_ = r.conn.SetReadDeadline(time.Unix(1, 0))
}

// resume undoes interrupt. The handler calls it before it does what it was interrupted for.
func (r *reader) resume() {
	_ = r.conn.SetReadDeadline(time.Time{})
	r.stopped.Store(false)
}

// await receives the next bytes, and looks for them if that is promising. EAGAIN says to wait for
// the poller. sent says that something was sent since the last receive call.
func (r *reader) await(sent bool) (int, unix.Errno) {
	if !r.drained {
		if n, errno := r.receive(); errno != unix.EAGAIN {
			return n, errno
		}
		if r.onDuty && duty.Offered() {
			return 0, unix.EAGAIN
		}
		sent = true // no further call is needed
	}
	if limit := r.look.begin(r.onDuty && r.attendant.Awaits()); limit > 0 {
		if n, errno := r.lookFor(limit); errno != unix.EAGAIN {
			r.look.end()
			return n, errno
		}
	}
	if sent {
		r.drained = false
		return 0, unix.EAGAIN
	}
	return r.receive()
}

// receive makes one receive call into the places that wait for data and the chunk.
func (r *reader) receive() (int, unix.Errno) {
	r.parts = r.prepare()
	n, left, errno := r.conn.Recv(r.iov[:r.parts], r.onDemand)
	if errno != 0 {
		r.tally.blocked++
		return 0, errno
	}
	r.tally.calls++
	r.drained = left == 0
	return n, 0
}

// prepare fills iov and returns how many entries it used.
func (r *reader) prepare() int {
	if r.r == r.w {
		r.r, r.w = 0, 0
	} else if len(r.buf)-r.w < len(r.buf)/2 {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	tail := r.buf[r.w:]
	n := 0
	if r.state == wantData && r.padding == 0 {
		for i := r.next; i < len(r.dst) && n < maxReadIov-1; i++ {
			setIov(&r.iov[n], r.dst[i])
			n++
		}
		// The chunk must not overtake places that don't fit into iov; data that has no place is
		// read through the chunk.
		if r.next+n < len(r.dst) {
			return n
		}
	}
	if r.large {
		tail = tail[:min(len(tail), directTail)]
	}
	setIov(&r.iov[n], tail)
	return n + 1
}

func setIov(v *unix.Iovec, b []byte) {
	v.Base = &b[0]
	v.SetLen(len(b))
}

// took accounts for n received bytes: first those that went straight to their place.
func (r *reader) took(n int) {
	if r.state == wantData && r.padding == 0 {
		for n > 0 && r.next < len(r.dst) {
			d := r.dst[r.next]
			k := min(n, len(d))
			r.advance(k)
			r.tally.direct += uint64(k)
			n -= k
		}
	}
	r.w += n
}

// advance records that the next k bytes of the current place have arrived.
func (r *reader) advance(k int) {
	d := r.dst[r.next]
	switch {
	case !r.rules.Format.DataDigest():
	case r.onDemand:
		var ok bool
		r.crc, ok = digestOnDemand(r.crc, d[:k])
		r.missed = r.missed || !ok
	default:
		r.crc = pdu.UpdateDigest(r.crc, d[:k])
	}
	r.left -= k
	if k == len(d) {
		r.dst[r.next] = nil
		r.next++
		return
	}
	r.dst[r.next] = d[k:]
}

// place adds a piece of memory for the data that follows. The pieces together must not be
// longer than the data.
func (r *reader) place(b []byte) {
	if len(b) > 0 {
		r.dst = append(r.dst, b)
	}
}
