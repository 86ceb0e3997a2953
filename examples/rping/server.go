package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// errDisconnected ends waiting when the client has disconnected.
var errDisconnected = errors.New("the client disconnected")

// serve serves one client, and returns how many of its pings it has read and written back.
func serve(ctx context.Context, cm verbs.ConnectionManager, at netip.AddrPort, out io.Writer) (n int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, err := accept(ctx, cm, at, out, cancel)
	if err != nil {
		return 0, err
	}
	for {
		err := s.pong(ctx, n)
		if isFlush(err) {
			// The connection has ended. Why, its event says, which a provider may deliver later.
			<-ctx.Done()
			err = context.Cause(ctx)
		}
		if errors.Is(err, errDisconnected) {
			return n, s.id.Disconnect()
		}
		if err != nil {
			return n, err
		}
		n++
	}
}

// isFlush reports whether err is that of work which was flushed.
func isFlush(err error) bool {
	var failed *rc.StatusError
	return errors.As(err, &failed) && failed.Status == verbs.WCWRFlushErr
}

// accept waits for a client. When that disconnects, cancel is called.
func accept(
	ctx context.Context, cm verbs.ConnectionManager, at netip.AddrPort, out io.Writer, cancel context.CancelCauseFunc,
) (*side, error) {
	requests := make(chan verbs.CMID, 1)
	listener, err := cm.CreateID(func(e verbs.CMEvent) {
		switch e.Type {
		case verbs.CMConnectRequest:
			requests <- e.ID
		case verbs.CMDisconnected:
			cancel(errDisconnected)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := listener.Listen(at, 1); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "waiting at %s\n", at)
	select {
	case id := <-requests:
		s, err := newSide(id)
		if err != nil {
			return nil, err
		}
		if err := id.Accept(param); err != nil {
			return nil, err
		}
		return s, listener.Destroy() // one client is enough
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pong reads ping number n and writes it back.
func (s *side) pong(ctx context.Context, n int) error {
	kinds := []verbs.WCOpcode{verbs.WCRecv}
	if n > 0 { // until the last pong has arrived, its memory belongs to the RNIC
		kinds = append(kinds, verbs.WCRDMAWrite, verbs.WCSend)
	}
	ping, err := s.next(ctx, kinds...)
	if err != nil {
		return err
	}
	if ping.size > maxSize {
		return fmt.Errorf("ping %d has %d bytes: want at most %d", n, ping.size, maxSize)
	}
	buf := s.Buf[pingAt:][:ping.size]
	clear(buf)
	err = rc.Send(s.qp, verbs.SendWR{
		Opcode: verbs.WRRDMARead, RemoteAddr: ping.addr, RKey: ping.rkey, SGList: s.SGE(pingAt, len(buf)),
	})
	if err != nil {
		return err
	}
	if _, err = s.next(ctx, verbs.WCRDMARead); err != nil {
		return fmt.Errorf("read ping %d: %w", n, err)
	}
	if err := checkPing(buf, n); err != nil {
		return err
	}
	if err := s.tell(info{}); err != nil {
		return err
	}
	pong, err := s.next(ctx, verbs.WCSend, verbs.WCRecv)
	if err != nil {
		return err
	}
	length := bytes.IndexByte(buf, 0) + 1 // the text, and the zero byte after it
	if int(pong.size) < length {
		return fmt.Errorf("place of %d bytes for a pong of %d", pong.size, length)
	}
	err = rc.Send(s.qp, verbs.SendWR{
		Opcode: verbs.WRRDMAWrite, RemoteAddr: pong.addr, RKey: pong.rkey, SGList: s.SGE(pingAt, length),
	})
	if err != nil {
		return err
	}
	// This SEND follows the WRITE: when it arrives, so has the data.
	return s.tell(info{})
}
