//go:build linux

package udp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// echoEnv makes the test binary the other process of a ping-pong, waiting as it says.
const echoEnv = "NVMEOF_UDP_ECHO"

// waits are the ways to wait for a datagram that were compared; "block" is what Recv does.
var waits = []struct {
	name string
	recv func(c *conn) func(rx []Received) (int, error)
}{
	{"block", func(c *conn) func([]Received) (int, error) { return c.Recv }},
	{"netpoll", recvByNetpoll},
	{"poll", recvByPoll},
	{"try-then-block", recvTryThenBlock},
}

// recvByNetpoll tries without blocking and parks the goroutine in the Go poller.
func recvByNetpoll(c *conn) func([]Received) (int, error) {
	f := os.NewFile(uintptr(must(unix.Dup(c.fd))), "udp")
	pc := must(net.FilePacketConn(f))
	f.Close()
	raw := must(pc.(syscall.Conn).SyscallConn())
	var rx []Received
	var n int
	var err error
	try := func(uintptr) bool {
		n, err = c.TryRecv(rx)
		return n > 0 || err != nil
	}
	return func(into []Received) (int, error) {
		rx = into
		if e := raw.Read(try); e != nil {
			return 0, e
		}
		return n, err
	}
}

// recvByPoll tries without blocking and then blocks in poll(2).
func recvByPoll(c *conn) func([]Received) (int, error) {
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
	return func(rx []Received) (int, error) {
		for {
			if n, err := c.TryRecv(rx); n > 0 || err != nil {
				return n, err
			}
			_, _ = unix.Poll(fds, -1)
		}
	}
}

// recvTryThenBlock tries without blocking and then does as Recv.
func recvTryThenBlock(c *conn) func([]Received) (int, error) {
	return func(rx []Received) (int, error) {
		if n, err := c.TryRecv(rx); n > 0 || err != nil {
			return n, err
		}
		return c.Recv(rx)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// echo answers every datagram until its standard input ends.
func echo(wait string) {
	c := must(Listen(netip.AddrPortFrom(loop4, 0), Config{})).(*conn)
	fmt.Println(c.LocalAddr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	recv := waitNamed(wait)(c)
	rx := make([]Received, RecvBatch)
	out := make([]Train, 0, RecvBatch)
	parts := make([][]byte, RecvBatch)
	for {
		n := must(recv(rx))
		out = out[:0]
		for i := range rx[:n] {
			parts[i] = rx[i].Buf
			out = append(out, Train{Dst: rx[i].Src, Parts: parts[i : i+1], Bytes: len(rx[i].Buf), SegmentSize: rx[i].SegmentSize})
		}
		must(c.Send(out))
	}
}

func waitNamed(name string) func(c *conn) func([]Received) (int, error) {
	for _, w := range waits {
		if w.name == name {
			return w.recv
		}
	}
	panic(name)
}

func startEcho(b *testing.B, wait string) netip.AddrPort {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), echoEnv+"="+wait)
	cmd.Stderr = os.Stderr
	in := must(cmd.StdinPipe())
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return netip.MustParseAddrPort(line[:len(line)-1])
}

// BenchmarkWait is a ping-pong of 64 bytes between two processes, depth 1: the time of an
// operation is a round trip with two wake-ups.
func BenchmarkWait(b *testing.B) {
	for _, w := range waits {
		b.Run(w.name, func(b *testing.B) {
			c := listen(b, loop4, Config{})
			peer := startEcho(b, w.name)
			recv := w.recv(c)
			rx := make([]Received, RecvBatch)
			ping := []Train{trainOf(peer, make([]byte, 64), 64)}
			b.ReportAllocs()
			for b.Loop() {
				must(c.Send(ping))
				must(recv(rx))
			}
		})
	}
}
