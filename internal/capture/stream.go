package capture

import (
	"net/netip"
	"sync"
	"time"
)

// maxSegment is the size of the segments into which the bytes of a stream are divided, similar
// to a capture on a host whose network card segments.
const maxSegment = 32 << 10

// Stream records one TCP connection.
type Stream struct {
	queue *queue

	mu      sync.Mutex
	skipped [2]int // bytes that found no room since the last record, by direction
	closed  bool

	// The following belongs to the File's goroutine.
	client bool
	flow   [2]flow
	next   [2]uint32 // sequence numbers
	id     [2]uint16
}

// Directions.
const (
	outward = iota
	inward
)

// Stream begins recording a connection; client says that this side opened it.
func (f *File) Stream(local, remote netip.AddrPort, client bool) *Stream {
	local, remote = unmap(local), unmap(remote)
	s := &Stream{
		queue: f.queue, client: client,
		flow: [2]flow{outward: {src: local, dst: remote}, inward: {src: remote, dst: local}},
	}
	f.queue.put(record{kind: tcpOpened, when: time.Now(), stream: s}, nil, 1)
	return s
}

// Sent records parts as sent. Call it before passing them to the socket, once for each byte:
// otherwise an answer could precede its question in the file.
func (s *Stream) Sent(parts [][]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	s.put(tcpSent, outward, parts, n)
}

// Received records the first n bytes of parts as received.
func (s *Stream) Received(parts [][]byte, n int) {
	s.put(tcpReceived, inward, parts, n)
}

func (s *Stream) put(k kind, direction int, parts [][]byte, n int) {
	if n <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := record{kind: k, when: time.Now(), stream: s, skipped: s.skipped[direction], size: n}
	if s.queue.put(r, parts, 1) {
		s.skipped[direction] = 0
	} else {
		s.skipped[direction] += n
	}
}

// Close ends the recording of the connection.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.queue.put(record{kind: tcpClosed, when: time.Now(), stream: s}, nil, 1)
	}
}

// emit writes one segment and counts its sequence numbers.
func (s *Stream) emit(w *writer, when time.Time, direction int, flags uint8, payload []byte) error {
	ack := s.next[1-direction]
	if flags&tcpACK == 0 {
		ack = 0
	}
	w.frame = s.flow[direction].appendTCP(w.frame[:0], s.id[direction], flags, s.next[direction], ack, payload)
	s.id[direction]++
	s.next[direction] += uint32(len(payload))
	if flags&(tcpSYN|tcpFIN) != 0 {
		s.next[direction]++
	}
	return w.write(when)
}

// step is a segment without data.
type step struct {
	direction int
	flags     uint8
}

func (s *Stream) steps(w *writer, when time.Time, steps ...step) error {
	for _, st := range steps {
		if err := s.emit(w, when, st.direction, st.flags, nil); err != nil {
			return err
		}
	}
	return nil
}

// open writes the handshake. The first sequence numbers are of the time: otherwise Wireshark takes a later connection with
// the same ports for retransmissions.
func (s *Stream) open(w *writer, when time.Time) error {
	first := uint32(when.UnixNano())
	s.next = [2]uint32{first, first}
	active, passive := inward, outward
	if s.client {
		active, passive = outward, inward
	}
	return s.steps(w, when, step{active, tcpSYN}, step{passive, tcpSYN | tcpACK}, step{active, tcpACK})
}

// end writes the close of both directions.
func (s *Stream) end(w *writer, when time.Time) error {
	return s.steps(w, when, step{outward, tcpFIN | tcpACK}, step{inward, tcpFIN | tcpACK}, step{outward, tcpACK})
}

// segments writes the bytes of a record.
func (s *Stream) segments(w *writer, r *record, data []byte) error {
	direction := outward
	if r.kind == tcpReceived {
		direction = inward
	}
	s.next[direction] += uint32(r.skipped)
	for len(data) > 0 {
		part, flags := data, uint8(tcpACK|tcpPSH)
		if len(part) > maxSegment {
			part, flags = part[:maxSegment], tcpACK
		}
		data = data[len(part):]
		if err := s.emit(w, r.when, direction, flags, part); err != nil {
			return err
		}
	}
	return nil
}
