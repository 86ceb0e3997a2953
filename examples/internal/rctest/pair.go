// Package rctest runs both roles of an example in one test.
package rctest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
)

// Role runs a program in one of its roles.
type Role func(ctx context.Context, out io.Writer) error

// RoleOf returns the role of a program that its arguments select: parse parses them, run runs it.
func RoleOf[O any](
	t testing.TB, parse func([]string, io.Writer) (O, error), run func(context.Context, O, io.Writer) error, args ...string,
) Role {
	t.Helper()
	o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, out io.Writer) error { return run(ctx, o, out) }
}

// Addr returns a random address of 127.0.0.0/8 without an RNIC: another run of the tests, or a target, may be on this
// machine.
func Addr(t testing.TB) string {
	t.Helper()
	for range 100 {
		part := func() byte { return byte(1 + rand.N(254)) }
		addr := netip.AddrFrom4([4]byte{127, part(), part(), part()})
		if c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, softrnic.Port))); err == nil {
			c.Close()
			return addr.String()
		}
	}
	t.Fatalf("UDP port %d of the loopback addresses is taken", softrnic.Port)
	return ""
}

// Run starts server and, once that has written something, client. It waits until both have ended and returns what they
// wrote. If one of them fails, the other is ended, or not started; if both wait for minutes, both are ended.
func Run(ctx context.Context, server, client Role) (serverOut, clientOut string, serverErr, clientErr error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // a machine may stand still for a while
	defer cancel()
	out := &notice{written: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- server(ctx, out) }()
	select {
	case <-out.written:
	case err := <-ended:
		return out.String(), "", err, nil
	}
	var b bytes.Buffer
	if clientErr = client(ctx, &b); clientErr != nil {
		cancel()
	}
	serverErr = <-ended
	return out.String(), b.String(), serverErr, clientErr
}

// notice is a buffer that reports the first write.
type notice struct {
	bytes.Buffer
	once    sync.Once
	written chan struct{}
}

func (n *notice) Write(b []byte) (int, error) {
	defer n.once.Do(func() { close(n.written) })
	return n.Buffer.Write(b)
}
