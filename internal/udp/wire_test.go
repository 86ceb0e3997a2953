//go:build linux

package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests of this file look at the packets that leave: they run again in a network
// namespace of their own, where the far end of the only interface, a tun device, is the test.

const netnsEnv = "NVMEOF_UDP_NETNS"

// inNetns runs the calling test in a child process in a namespace of its own and reports
// whether this is the child.
func inNetns(t *testing.T) bool {
	if os.Getenv(netnsEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), netnsEnv+"=1")
	cmd.SysProcAttr = ownNetns()
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC):
		t.Skip("may not make a network namespace here:", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("in a namespace:\n%s", out)
	}
	return false
}

// ownNetns has a child start in a network namespace of its own, and in a user namespace, in
// which an ordinary user may set interfaces up.
func ownNetns() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return a
}

// tun is the far end of a point-to-point interface: reads are what the kernel sends.
type tun struct{ *os.File }

const wireMTU = 4300

func openTun(t *testing.T, local netip.Prefix) *tun {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no tun device here:", err)
	}
	ifr := must(unix.NewIfreq("wire0"))
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		t.Skip("may not make a tun device here:", err)
	}
	for _, args := range []string{
		fmt.Sprintf("addr add %v dev wire0 nodad", local), fmt.Sprintf("link set wire0 mtu %d up", wireMTU), "link set lo up",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %v %s", args, err, out)
		}
	}
	f := os.NewFile(uintptr(fd), "tun")
	t.Cleanup(func() { f.Close() })
	return &tun{f}
}

// udpPacket reads the next packet that is UDP to port 4791.
func (w *tun) udpPacket(t *testing.T) []byte {
	t.Helper()
	w.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 1<<16)
	for {
		n, err := w.Read(buf)
		if err != nil {
			t.Fatal("nothing left the interface:", err)
		}
		p := buf[:n]
		v4 := p[0]>>4 == 4 && p[9] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(p[22:]) == 4791
		v6 := p[0]>>4 == 6 && p[6] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(p[42:]) == 4791
		if v4 || v6 {
			return p
		}
	}
}

// TestWireIdentification proves what the ICRC relies on: Don't Fragment and Identification 0
// for a datagram alone, 0, 1, 2 … within a train.
func TestWireIdentification(t *testing.T) {
	if !inNetns(t) {
		return
	}
	w := openTun(t, netip.MustParsePrefix("10.77.0.1/24"))
	c := listen(t, netip.MustParseAddr("10.77.0.1"), Config{})
	if c.MTU() != wireMTU {
		t.Errorf("MTU %d, want %d", c.MTU(), wireMTU)
	}
	peer := netip.MustParseAddrPort("10.77.0.2:4791")
	for _, count := range []int{1, 15, 1, 3, 2} {
		train := trainOf(peer, pattern((count-1)*4140+36, 7), 4140)
		train.TrafficClass = 0x6a
		if count > 1 && !c.Segmentation() {
			t.Skip("the kernel doesn't segment for this interface")
		}
		if n, err := c.Send([]Train{train}); err != nil {
			if errors.Is(err, ErrSegmentation) {
				t.Skip("older kernels don't segment for an interface without checksum offload:", err)
			}
			t.Fatal(n, err)
		}
		var got []byte
		for i := range count {
			p := w.udpPacket(t)
			id, flags := binary.BigEndian.Uint16(p[4:]), binary.BigEndian.Uint16(p[6:])
			if int(id) != i || flags != 0x4000 || p[0] != 0x45 || p[1] != 0x6a {
				t.Fatalf("datagram %d of %d: Identification %d, flags %#x, version %#x, TOS %#x", i, count, id, flags, p[0], p[1])
			}
			got = append(got, p[28:]...)
		}
		if !bytes.Equal(got, bytes.Join(train.Parts, nil)) {
			t.Fatal("other bytes left than were sent")
		}
	}
}

// TestWireTooLong: what exceeds the interface is dropped and counted, never fragmented, and
// isn't taken for a lack of segmentation.
func TestWireTooLong(t *testing.T) {
	if !inNetns(t) {
		return
	}
	w := openTun(t, netip.MustParsePrefix("10.77.0.1/24"))
	c := listen(t, netip.MustParseAddr("10.77.0.1"), Config{})
	peer := netip.MustParseAddrPort("10.77.0.2:4791")
	const longest = wireMTU - 28
	n, err := c.Send([]Train{
		trainOf(peer, pattern(longest+1, 1), longest+1),
		trainOf(peer, pattern(2*longest+2, 1), longest+1),
		trainOf(peer, pattern(longest, 1), longest),
	})
	k := c.Counters()
	if n != 3 || err != nil || k.TxDrops.Load() != 3 || k.TxDatagrams.Load() != 1 || !c.Segmentation() {
		t.Errorf("took %d, %v; %d dropped, %d sent, segmentation %v",
			n, err, k.TxDrops.Load(), k.TxDatagrams.Load(), c.Segmentation())
	}
	if p := w.udpPacket(t); len(p) != wireMTU {
		t.Errorf("a packet of %d bytes left", len(p))
	}
}

// TestWireWithoutChecksum receives what rdma_rxe sends: no UDP checksum, on IPv6 too.
func TestWireWithoutChecksum(t *testing.T) {
	if !inNetns(t) {
		return
	}
	w := openTun(t, netip.MustParsePrefix("fd77::1/64"))
	c, err := Listen(netip.MustParseAddrPort("[fd77::1]:4791"), Config{})
	if err != nil {
		t.Skip("no IPv6 here:", err)
	}
	defer c.Close()
	payload := pattern(100, 1)
	p := []byte{0x60 | 0x6a>>4, 0x6a & 0xf << 4, 0, 0, 0, 8 + 100, unix.IPPROTO_UDP, 64}
	from, to := netip.MustParseAddr("fd77::2").As16(), netip.MustParseAddr("fd77::1").As16()
	p = append(append(p, from[:]...), to[:]...)
	p = binary.BigEndian.AppendUint16(p, 0xc123)
	p = binary.BigEndian.AppendUint16(p, 4791)
	p = append(p, 0, 8+100, 0, 0)
	// A new interface may drop what comes before the kernel is done with its address, so the
	// packet comes again until it has arrived.
	arrived, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for again := time.NewTicker(20 * time.Millisecond); ; {
			_, _ = w.Write(append(p, payload...))
			select {
			case <-again.C:
			case <-arrived:
				again.Stop()
				return
			}
		}
	}()
	rx := make([]Received, 1)
	guard := time.AfterFunc(patience, func() { c.Close() })
	_, err = c.Recv(rx)
	guard.Stop()
	close(arrived)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	if got := rx[0]; !bytes.Equal(got.Buf, payload) || got.TrafficClass != 0x6a || got.Src.String() != "[fd77::2]:49443" {
		t.Errorf("received %d bytes from %v, class %#x", len(got.Buf), got.Src, got.TrafficClass)
	}
}
