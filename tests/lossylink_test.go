package tests

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lossyLink joins two network namespaces by a link whose packets this process carries: it loses some, and delays the
// others. Programs in the namespaces see it as a network device, so that the kernel's TCP and the RNIC on UDP have the
// same losses. It needs root and TUN devices.
type lossyLink struct {
	ends  [2]*linkEnd
	loss  atomic.Uint64 // share of the packets, as bits of a float64
	drops [2]atomic.Int64
	full  atomic.Int64 // dropped because too much was queued
	stop  int          // eventfd, readable when the link ends
	work  sync.WaitGroup
}

// linkEnd is a namespace with its device.
type linkEnd struct {
	addr netip.Addr
	do   chan func() // functions for a thread in the namespace
	tun  int
}

// lossyConfig describes the link.
type lossyConfig struct {
	mtu     int
	latency time.Duration // one way
	rate    int           // bytes a second
	queue   int           // bytes that may wait for the rate
}

const lossyDevice = "lossy0"

// newLossyLink makes the link, which ends with the test.
func newLossyLink(t *testing.T, c lossyConfig) *lossyLink {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a link between network namespaces is made by root only")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no ip(8) here (apt install iproute2)")
	}
	l := &lossyLink{}
	var err error
	if l.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(l.stop) })
	for i := range l.ends {
		l.ends[i] = newLinkEnd(t, netip.AddrFrom4([4]byte{198, 18, 9, byte(i + 1)}), c.mtu)
	}
	for i := range l.ends {
		l.work.Go(func() { l.carry(c, i) })
	}
	t.Cleanup(func() {
		_, _ = unix.Write(l.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		l.work.Wait()
	})
	return l
}

func newLinkEnd(t *testing.T, addr netip.Addr, mtu int) *linkEnd {
	t.Helper()
	e := &linkEnd{addr: addr, do: make(chan func()), tun: -1}
	t.Cleanup(func() {
		close(e.do)
		_ = unix.Close(e.tun)
	})
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and the namespace with it
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = e.open(mtu)
		}
		made <- err
		for f := range e.do {
			f()
		}
	}()
	switch err := <-made; {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		t.Skipf("no network namespace with a TUN device here: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return e
}

// open makes the device. It runs in the namespace.
func (e *linkEnd) open(mtu int) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	e.tun = fd
	ifr, err := unix.NewIfreq(lossyDevice)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	for _, c := range []string{
		"link set lo up",
		fmt.Sprintf("addr add %s/24 dev %s", e.addr, lossyDevice),
		// A full queue of the device would cause losses of its own.
		fmt.Sprintf("link set %s mtu %d txqueuelen 20000 up", lossyDevice, mtu),
	} {
		if err := e.ip(c); err != nil {
			return err
		}
	}
	return nil
}

// in runs f in the namespace.
func (e *linkEnd) in(f func() error) error {
	done := make(chan error)
	e.do <- func() { done <- f() }
	return <-done
}

// useTCP chooses the congestion control of TCP between both ends. It is an attribute of the route: a namespace may
// choose only some algorithms for itself.
func (l *lossyLink) useTCP(name string) error {
	for _, e := range l.ends {
		if err := e.in(func() error {
			return e.ip(fmt.Sprintf("route replace %s dev %s proto kernel scope link src %s congctl %s",
				netip.PrefixFrom(e.addr, 24).Masked(), lossyDevice, e.addr, name))
		}); err != nil {
			return err
		}
	}
	return nil
}

// ip runs ip(8). It is called in the namespace.
func (e *linkEnd) ip(command string) error {
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, out)
	}
	return nil
}

func (l *lossyLink) setLoss(share float64) { l.loss.Store(math.Float64bits(share)) }

// underway is a packet on the link.
type underway struct {
	due    time.Time
	packet []byte
}

// carry carries what end i sends to the other one.
func (l *lossyLink) carry(c lossyConfig, i int) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // 50 µs otherwise
	from, to := l.ends[i].tun, l.ends[1-i].tun
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	var line []underway
	var spare [][]byte
	free := time.Now() // when the last packet has left
	buf := make([]byte, c.mtu)
	for {
		now := time.Now()
		for range 64 {
			n, err := unix.Read(from, buf)
			if err != nil || n == 0 {
				break
			}
			switch {
			case rng.Float64() < math.Float64frombits(l.loss.Load()):
				l.drops[i].Add(1)
				continue
			case int(free.Sub(now).Seconds()*float64(c.rate)) > c.queue:
				l.full.Add(1)
				continue
			case free.Before(now):
				free = now
			}
			free = free.Add(time.Duration(float64(n) / float64(c.rate) * 1e9))
			var b []byte
			if k := len(spare); k > 0 {
				b, spare = spare[k-1], spare[:k-1]
			}
			line = append(line, underway{free.Add(c.latency), append(b[:0], buf[:n]...)})
		}
		now = time.Now()
		sent := 0
		for ; sent < len(line) && !line[sent].due.After(now); sent++ {
			_, _ = unix.Write(to, line[sent].packet)
			spare = append(spare, line[sent].packet)
		}
		line = slices.Delete(line, 0, sent)
		if !l.wait(from, line) {
			return
		}
	}
}

// wait returns when there may be something to carry; false at the end.
func (l *lossyLink) wait(from int, line []underway) bool {
	var timeout *unix.Timespec
	if len(line) > 0 {
		ts := unix.NsecToTimespec(int64(max(time.Until(line[0].due), 0)))
		timeout = &ts
	}
	fds := []unix.PollFd{{Fd: int32(from), Events: unix.POLLIN}, {Fd: int32(l.stop), Events: unix.POLLIN}}
	_, err := unix.Ppoll(fds, timeout, nil)
	return (err == nil || errors.Is(err, unix.EINTR)) && fds[1].Revents == 0
}

// roundTrip returns the median time that a datagram takes to the other end and back on the otherwise idle link.
func (l *lossyLink) roundTrip(t *testing.T) time.Duration {
	t.Helper()
	var conns [2]net.PacketConn
	for i, e := range l.ends {
		if err := e.in(func() (err error) {
			conns[i], err = net.ListenPacket("udp4", netip.AddrPortFrom(e.addr, 0).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	go func() {
		var b [64]byte
		for {
			n, from, err := conns[1].ReadFrom(b[:])
			if err != nil {
				return
			}
			_, _ = conns[1].WriteTo(b[:n], from)
		}
	}()
	var all []time.Duration
	var b [64]byte
	for range 200 {
		began := time.Now()
		_ = conns[0].SetDeadline(began.Add(time.Second))
		if _, err := conns[0].WriteTo(b[:], conns[1].LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conns[0].ReadFrom(b[:]); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
