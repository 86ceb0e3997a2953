package simnet

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// tcpState is the state of a connection, apart from the ends of its two streams.
type tcpState uint8

const (
	synSent tcpState = iota
	synReceived
	established
	gone // nothing is received or sent any more
)

const (
	// maxSegment is the most data of a segment.
	maxSegment = 8960
	// retransmission is the time after which a segment is sent again first. It doubles each time, up to longest.
	retransmission = 200 * time.Millisecond
	longest        = 2 * time.Minute
	// synRetransmission is the same for the first segment.
	synRetransmission = time.Second
	// retries are how often a segment is sent again before the connection is given up, synRetries the first one.
	retries    = 15
	synRetries = 6
	// duplicates is how many acknowledgments of the same byte say that what follows it was lost.
	duplicates = 3
	// timeWait is how long a closed connection waits for what the peer may still send.
	timeWait = time.Minute
)

// outgoing is what a connection sends.
type outgoing struct {
	first    uint64 // number of out[0], or of the SYN or FIN, if that isn't acknowledged
	next     uint64 // number of what was never sent
	out      []byte // not acknowledged
	finished bool   // the end of the stream (FIN) comes after out
	finSent  bool
	window   int // how many bytes from first on the peer has room for

	timer   *time.Timer
	due     time.Time // of timer; zero while it is stopped
	tried   int       // how often the first segment was sent again
	again   int       // acknowledgments of first that came again
	recover uint64    // what was sent before this number is sent again as acknowledgments show that it is missing
}

// incoming is what a connection receives.
type incoming struct {
	expected uint64  // number of what comes next
	held     []piece // what came early, in order
	told     uint64  // number up to which the peer knows of room
}

// piece is a part of the stream.
type piece struct {
	number uint64
	data   []byte
	end    bool // of the stream
}

// emit sends a segment, with an acknowledgment unless it is the very first.
func (c *tcpConn) emit(s segment, data []byte) {
	s.ack = c.state != synSent
	s.acked = c.expected
	s.window = max(c.buffer-len(c.in), 0)
	c.told = c.expected + uint64(s.window)
	c.tcp.send(c.at, s, data)
}

// acknowledge sends an acknowledgment alone.
func (c *tcpConn) acknowledge() { c.emit(segment{number: c.next}, nil) }

// sendSYN sends the first segment.
func (c *tcpConn) sendSYN() {
	c.next = c.first + 1
	c.emit(segment{syn: true, number: c.first}, nil)
	c.arm(synRetransmission)
}

// end returns the number after the last byte of out.
func (c *tcpConn) end() uint64 { return c.first + uint64(len(c.out)) }

// push sends what was never sent and the peer has room for.
func (c *tcpConn) push() {
	if c.state != established {
		return
	}
	for c.next < c.end() {
		room := int(c.first) + c.window - int(c.next)
		n := min(c.size(), int(c.end()-c.next), room)
		if n <= 0 {
			break
		}
		c.emit(segment{number: c.next}, c.out[c.next-c.first:][:n])
		c.next += uint64(n)
	}
	if c.finished && !c.finSent && c.next == c.end() {
		c.emit(segment{number: c.next, fin: true}, nil)
		c.next++
		c.finSent = true
	}
	if c.due.IsZero() && (c.next > c.first || len(c.out) > 0) {
		c.arm(retransmission)
	}
}

// size draws the size of a segment: most are as large as possible, and the others end anywhere.
func (c *tcpConn) size() int {
	if c.tcp.rng.IntN(4) > 0 {
		return maxSegment
	}
	return 1 + c.tcp.rng.IntN(maxSegment)
}

// resend sends again what the peer expects next, or if there is no room for anything asks for some.
func (c *tcpConn) resend() {
	switch {
	case c.state != established:
		c.emit(segment{syn: true, number: c.first}, nil)
	case c.next == c.first: // without a byte: the answer to an old number says how much room there is
		c.emit(segment{number: c.first - 1}, nil)
	case len(c.out) > 0:
		n := min(c.size(), len(c.out), int(c.next-c.first))
		c.emit(segment{number: c.first}, c.out[:n])
	default:
		c.emit(segment{number: c.first, fin: true}, nil)
	}
}

func (c *tcpConn) arm(d time.Duration) {
	c.due = time.Now().Add(d)
	c.timer.Reset(d)
}

func (c *tcpConn) disarm() {
	c.due = time.Time{}
	c.timer.Stop()
}

// expire is the timer's function: the peer has acknowledged nothing for too long.
func (c *tcpConn) expire() {
	c.tcp.mu.Lock()
	defer c.tcp.mu.Unlock()
	if c.state == gone || c.due.IsZero() || time.Now().Before(c.due) {
		return
	}
	first, most := retransmission, retries
	if c.state != established {
		first, most = synRetransmission, synRetries
	}
	switch c.tried++; {
	case c.over():
		c.forget()
	case c.tried > most:
		c.fail(unix.ETIMEDOUT)
	default:
		c.recover = c.next
		c.resend()
		c.arm(min(first<<c.tried, longest))
	}
}

// handle takes a segment of the peer.
func (c *tcpConn) handle(s segment, data []byte) {
	switch {
	case s.rst:
		c.wasReset(s)
		return
	case c.state == synSent:
		if !s.syn || !s.ack || s.acked != c.next {
			return
		}
		c.expected = s.number + 1
		c.establish(s)
		c.acknowledge()
		return
	case s.syn: // again: its answer was lost
		c.resendAnswer()
		return
	case c.state == synReceived:
		if s.acked != c.next {
			return
		}
		c.establish(s)
		c.listener.opening--
		c.listener.waiting = append(c.listener.waiting, c)
		notify(c.listener.ready)
		c.listener = nil
	}
	if c.finished && c.readShut && len(data) > 0 && s.number+uint64(len(data)) > c.expected { // nobody will read it
		c.reset()
		c.fail(unix.ECONNRESET)
		return
	}
	c.acknowledged(s, len(data) > 0 || s.fin)
	c.take(s, data)
	c.lingerIfOver()
}

// resendAnswer answers a SYN that came again.
func (c *tcpConn) resendAnswer() {
	if c.state == synReceived {
		c.resend()
		return
	}
	c.acknowledge()
}

func (c *tcpConn) establish(s segment) {
	c.state = established
	c.first, c.window, c.tried = c.next, s.window, 0
	c.disarm()
	close(c.settled)
}

// wasReset takes a reset, if its number is right: one that could be of a time when something was still missing is
// answered, and comes again with the right one (RFC 5961).
func (c *tcpConn) wasReset(s segment) {
	switch {
	case c.state == synSent:
		if s.ack && s.acked == c.next {
			c.fail(unix.ECONNREFUSED)
		}
	case s.number == c.expected && c.ended:
		c.fail(unix.EPIPE)
	case s.number == c.expected:
		c.fail(unix.ECONNRESET)
	case s.number > c.expected && s.number <= c.told+1:
		c.acknowledge()
	}
}

// acknowledged takes the acknowledgment in s.
func (c *tcpConn) acknowledged(s segment, carries bool) {
	switch {
	case s.acked < c.first || s.acked > c.next:
		return
	case s.acked == c.first:
		if !carries && s.window == c.window && c.next > c.first {
			if c.again++; c.again == duplicates && c.recover <= c.first {
				c.recover = c.next
				c.resend()
			}
		}
	default:
		c.advance(s.acked)
	}
	if c.window = s.window; c.next == c.first {
		c.tried = 0
	}
	c.push()
}

// advance forgets what was acknowledged.
func (c *tcpConn) advance(acked uint64) {
	c.out = c.out[min(int(acked-c.first), len(c.out)):]
	c.first = acked
	c.tried, c.again = 0, 0
	c.disarm()
	if c.first < c.next {
		c.arm(retransmission)
		if c.first < c.recover {
			c.resend()
		}
	}
	if c.full && 3*len(c.out) <= 2*c.buffer {
		c.full = false
		c.writable.signal()
	}
}

// take takes the data of s, and the end of the stream, in the order of their numbers.
func (c *tcpConn) take(s segment, data []byte) {
	if len(data) == 0 && !s.fin {
		if s.number < c.expected { // a question for room
			c.acknowledge()
		}
		return
	}
	i, _ := slices.BinarySearchFunc(c.held, s.number, func(p piece, n uint64) int { return cmp.Compare(p.number, n) })
	c.held = slices.Insert(c.held, i, piece{s.number, data, s.fin})
	came := false
	for len(c.held) > 0 && c.held[0].number <= c.expected {
		p := c.held[0]
		c.held = c.held[1:]
		came = c.append(p) || came
	}
	if came {
		c.readable.signal()
	}
	c.acknowledge()
}

// append adds the part of p that is new, as far as there is room, and reports whether anything was.
func (c *tcpConn) append(p piece) bool {
	old := c.expected - p.number
	if c.ended || old > uint64(len(p.data)) {
		return false
	}
	data := p.data[old:]
	n := min(len(data), c.buffer-len(c.in))
	c.in = append(c.in, data[:n]...)
	c.expected += uint64(n)
	if p.end && n == len(data) {
		c.expected++
		c.ended = true
		return true
	}
	return n > 0
}

// tellOfRoom tells the peer of room that it doesn't know of, if that is worth a segment.
func (c *tcpConn) tellOfRoom() {
	if c.state == established && !c.ended && c.expected+uint64(c.buffer-len(c.in)) >= c.told+uint64(c.buffer/2) {
		c.acknowledge()
	}
}

// reset ends the connection at once, and tells the peer.
func (c *tcpConn) reset() {
	c.emit(segment{rst: true, number: c.next}, nil)
	c.forget()
}

// fail ends the connection because of err, which the next call returns.
func (c *tcpConn) fail(err unix.Errno) {
	if c.state == synSent {
		close(c.settled)
	}
	c.err = err
	c.forget()
	c.readable.signal()
	c.writable.signal()
}

// forget removes the connection. What was received can still be read.
func (c *tcpConn) forget() {
	if c.listener != nil {
		c.listener.opening--
		c.listener = nil
	}
	c.state = gone
	c.out, c.held = nil, nil
	c.disarm()
	if c.tcp.conns[c.at] == c {
		delete(c.tcp.conns, c.at)
	}
}

// sentAll reports whether the peer has received everything, and the end of the stream.
func (c *tcpConn) sentAll() bool { return c.finSent && c.first == c.next }

// over reports whether the connection is closed, and the peer has received everything.
func (c *tcpConn) over() bool { return c.closed && c.sentAll() }

// lingerIfOver has a connection that is over wait for a while, to answer what the peer still sends.
func (c *tcpConn) lingerIfOver() {
	if c.over() && c.due.IsZero() {
		c.arm(timeWait)
	}
}
