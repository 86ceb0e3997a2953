//go:build linux

package udp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/bpf"
)

// byFirst gives a datagram to the socket that its first byte names.
var byFirst = []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 1}, bpf.RetA{}}

func listenGroup(t *testing.T, addr netip.AddrPort, n int) []Conn {
	t.Helper()
	program, err := bpf.Assemble(byFirst)
	if err != nil {
		t.Fatal(err)
	}
	group, err := ListenGroup(addr, Config{}, n, program)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// TestGroup: each datagram, and each train as a whole, goes to the socket that the program names by its first bytes; all
// sockets send from the shared address; and nobody else gets the port while one of them is open.
func TestGroup(t *testing.T) {
	for _, addr := range []netip.Addr{loop4, loop6} {
		t.Run(addr.String(), func(t *testing.T) {
			peer := listen(t, addr, Config{})
			arrived := receiveAll(t, peer)
			group := listenGroup(t, netip.AddrPortFrom(addr, 0), 3)
			dst := group[0].LocalAddr()
			var boxes []*inbox
			for i, c := range group {
				if c.LocalAddr() != dst {
					t.Errorf("socket %d has address %v, not %v", i, c.LocalAddr(), dst)
				}
				boxes = append(boxes, receiveAll(t, c))
			}
			datagrams := func(from *conn, to netip.AddrPort, firsts ...byte) {
				t.Helper()
				train := Train{Dst: to}
				for _, b := range firsts {
					train.Append(bytes.Repeat([]byte{b}, 100))
				}
				send(t, from, train)
			}
			for range 20 {
				for i := range group {
					datagrams(peer, dst, byte(i))
				}
			}
			whole := peer.Segmentation()
			datagrams(peer, dst, 2, 1)
			want := []int{20, 21, 21}
			if whole { // the kernel looks at a train before it cuts it, if ever
				want = []int{20, 20, 22}
			}
			for i, n := range want {
				for range n {
					if d := <-boxes[i].datagrams; int(d[0]) != i && (!whole || i != 2 || d[0] != 1) {
						t.Errorf("socket %d got a datagram for %d", i, d[0])
					}
				}
			}
			datagrams(group[1].(*conn), peer.LocalAddr(), 0)
			<-arrived.datagrams
			if s := <-arrived.seen; s.Src != dst {
				t.Errorf("from %v, not %v", s.Src, dst)
			}
			if _, err := Listen(dst, Config{}); !errors.Is(err, ErrInUse) {
				t.Errorf("another socket: %v", err)
			}
			if _, err := ListenGroup(dst, Config{}, 2, nil); !errors.Is(err, ErrInUse) {
				t.Errorf("another group: %v", err)
			}
		})
	}
}

// TestGroupRefused: what a group can't have or do is refused, and leaves no socket behind.
func TestGroupRefused(t *testing.T) {
	if _, err := ListenGroup(netip.AddrPortFrom(loop4, 0), Config{ShareMemory: true}, 2, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("shared memory: %v", err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 90, byte(rand.N(256)), byte(1 + rand.N(254))}), 4791)
	if _, err := ListenGroup(addr, Config{}, 2, []bpf.RawInstruction{{Op: 0xffff}}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a program that is none: %v", err)
	}
	again, err := Listen(addr, Config{})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestGroupsAtOnce: of several that want the same address at once, one gets it.
func TestGroupsAtOnce(t *testing.T) {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 91, byte(rand.N(256)), byte(1 + rand.N(254))}), 4791)
	program, err := bpf.Assemble(byFirst)
	if err != nil {
		t.Fatal(err)
	}
	var tries sync.WaitGroup
	var got atomic.Int32
	keep := make(chan struct{})
	var tried sync.WaitGroup
	for range 8 {
		tried.Add(1)
		tries.Go(func() {
			group, err := ListenGroup(addr, Config{}, 3, program)
			if err == nil {
				got.Add(1)
			} else if !errors.Is(err, ErrInUse) {
				t.Error(err)
			}
			tried.Done()
			<-keep
			if err := closeAll(group); err != nil {
				t.Error(err)
			}
		})
	}
	tried.Wait()
	close(keep)
	tries.Wait()
	if got.Load() != 1 {
		t.Errorf("%d have it", got.Load())
	}
}
