package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// ping connects, has the server read and write back each ping, and returns how many came back
// unchanged.
func ping(ctx context.Context, cm verbs.ConnectionManager, o options) (n int, err error) {
	s, err := connect(ctx, cm, o.Addr())
	if err != nil {
		return 0, err
	}
	ping, pong := s.Buf[pingAt:][:o.size], s.Buf[pongAt:][:o.size]
	for ; n < o.count; n++ {
		makePing(ping, n)
		clear(pong)
		// Expose the ping; the server says when it has read it. Then expose the place for the
		// pong.
		for _, at := range []int{pingAt, pongAt} {
			if err := s.tell(info{addr: s.MR.Addr() + uint64(at), rkey: s.MR.RKey(), size: uint32(o.size)}); err != nil {
				return n, err
			}
			if _, err := s.next(ctx, verbs.WCSend, verbs.WCRecv); err != nil {
				return n, err
			}
		}
		if err := checkPing(pong, n); err != nil {
			return n, fmt.Errorf("pong: %w", err)
		}
	}
	return n, s.id.Disconnect()
}

// resolveTimeout bounds each step of resolving the route to the server.
const resolveTimeout = 2 * time.Second

// connect goes through the steps of the active side: resolve the device and the route, make the
// queue pair, connect. Every step ends with an event.
func connect(ctx context.Context, cm verbs.ConnectionManager, to netip.AddrPort) (*side, error) {
	events := make(chan verbs.CMEvent, 8)
	id, err := cm.CreateID(func(e verbs.CMEvent) { events <- e })
	if err != nil {
		return nil, err
	}
	if err := id.ResolveAddr(netip.Addr{}, to, resolveTimeout); err != nil {
		return nil, err
	}
	if err := await(ctx, events, verbs.CMAddrResolved); err != nil {
		return nil, err
	}
	if err := id.ResolveRoute(resolveTimeout); err != nil {
		return nil, err
	}
	if err := await(ctx, events, verbs.CMRouteResolved); err != nil {
		return nil, err
	}
	s, err := newSide(id)
	if err != nil {
		return nil, err
	}
	if err := id.Connect(param); err != nil {
		return nil, err
	}
	if err := await(ctx, events, verbs.CMEstablished); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return s, nil
}

// await waits for an event, and reports why another one came in its place.
func await(ctx context.Context, events <-chan verbs.CMEvent, want verbs.CMEventType) error {
	select {
	case e := <-events:
		switch {
		case e.Type == want:
			return nil
		case e.Type == verbs.CMRejected && e.Reason == verbs.RejectInvalidServiceID:
			return fmt.Errorf("rejected: %s: no server listens at this port", e.Reason)
		case e.Type == verbs.CMRejected:
			return fmt.Errorf("rejected: %s", e.Reason)
		case e.Err != nil:
			return e.Err
		}
		return fmt.Errorf("%s instead of %s", e.Type, want)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
