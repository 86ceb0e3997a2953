package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
)

const (
	// patience is how long a message may take to be written before those who write messages stop waiting.
	patience = 100 * time.Millisecond
	// mostMessages is how many messages wait for a reader that has stopped.
	mostMessages = 1024
)

var errNotRead = errors.New("messages are not being read")

// messages passes on what is written to it, one message a Write, to standard error. Its reader may stop reading: a log
// collector that hangs, a pager, a terminal after Ctrl-S. Messages come from the middle of I/O, which must go on.
//
// Write returns when its message has been written, so that messages keep their place among what else the program prints
// and does. But when one has taken longer than patience, Write stops waiting until the reader has caught up and takes a
// message without delay. So a reader that is always slow holds nobody up again and again.
type messages struct {
	w io.Writer

	mu      sync.Mutex
	writing bool   // passOn runs
	late    bool   // the reader has stopped or is slow, and hasn't caught up yet
	next    *batch // what passOn writes next; nil if there is nothing
	lost    int    // messages that found no room
}

type batch struct {
	messages [][]byte
	written  chan struct{}
}

// Write fails, and drops b, if too many messages are waiting. Failures of standard error itself are ignored: there is
// no other place to report them.
func (m *messages) Write(b []byte) (int, error) { return m.write(b, mostMessages) }

// conclude writes a message that the program ends with. There is always room for two of them.
func (m *messages) conclude(format string, a ...any) {
	_, _ = m.write(fmt.Appendf(nil, format, a...), mostMessages+2)
}

// account says how many messages of the program were lost, if any.
func (m *messages) account(program string) {
	m.mu.Lock()
	lost := m.lost
	m.mu.Unlock()
	if lost > 0 {
		m.conclude("%s: %s lost, because nobody read standard error in time\n", program, english.Plural(lost, "message", ""))
	}
}

// write is Write where no more than most messages wait, b included.
func (m *messages) write(b []byte, most int) (int, error) {
	written, late, err := m.add(b, most)
	if err != nil {
		return 0, err
	}
	if late {
		return len(b), nil
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-written:
	case <-timeout.C:
		m.giveUp()
	}
	return len(b), nil
}

// add queues b, unless most messages are waiting. It returns a channel that is closed when b has been written, and
// whether not to wait for that.
func (m *messages) add(b []byte, most int) (written <-chan struct{}, late bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.next = &batch{written: make(chan struct{})}
	}
	if len(m.next.messages) >= most {
		m.lost++
		return nil, false, errNotRead
	}
	m.next.messages = append(m.next.messages, bytes.Clone(b))
	if !m.writing {
		m.writing = true
		go m.passOn()
	}
	return m.next.written, m.late, nil
}

// giveUp makes Write not wait until passOn has written everything.
func (m *messages) giveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = m.writing
}

// passOn writes until nothing is left.
func (m *messages) passOn() {
	var took time.Duration // by the last message
	for b := m.take(took); b != nil; b = m.take(took) {
		for _, message := range b.messages {
			began := time.Now()
			_, _ = m.w.Write(message)
			took = time.Since(began)
		}
		close(b.written)
	}
}

// take returns the next messages to write, when the last one took so long. Without any, passOn ends.
func (m *messages) take(took time.Duration) *batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.next
	m.next = nil
	if b == nil {
		m.writing, m.late = false, m.late && took >= patience
	}
	return b
}

// flush waits until everything has been written, but no longer than lastWords after ctx is over.
func (m *messages) flush(ctx context.Context) {
	_, _ = Leaving(ctx, lastWords, func() (struct{}, error) {
		if written := m.last(); written != nil {
			<-written
		}
		return struct{}{}, nil
	})
}

// last returns a channel that is closed when everything has been written, or nil if it has.
func (m *messages) last() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.writing:
		return nil
	case m.next == nil: // all are in passOn's hands: what comes next is written after them
		m.next = &batch{written: make(chan struct{})}
	}
	return m.next.written
}

// Unwrap returns the underlying writer, for code that checks whether it is a terminal.
func (m *messages) Unwrap() io.Writer { return m.w }

// Transient returns a writer to w for what is soon out of date, such as progress. If w is a command's standard error,
// nothing of that waits for a reader that has stopped: it would take the place of messages.
func Transient(w io.Writer) io.Writer {
	if m, ok := w.(*messages); ok {
		return transient{m}
	}
	return w
}

type transient struct{ *messages }

func (t transient) Write(b []byte) (int, error) {
	if t.behind() {
		return len(b), nil
	}
	return t.messages.Write(b)
}

// behind reports whether messages are waiting for a reader that has stopped or is slow.
func (m *messages) behind() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.late && m.writing
}
