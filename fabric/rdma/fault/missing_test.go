package fault

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// TestMissingMemory: a packet whose payload is in a mapped file that was truncated is lost, whether it would have been
// altered or held back, and the one behind it arrives.
func TestMissingMemory(t *testing.T) {
	for name, cfg := range map[string]Config{"corrupt": {Corrupt: 1e-9}, "delay": {Delay: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			page := os.Getpagesize()
			if err := f.Truncate(int64(page)); err != nil {
				t.Fatal(err)
			}
			gone, err := unix.Mmap(int(f.Fd()), 0, page, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Munmap(gone)
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
			p := newPair(t, Out, cfg)
			there := make([]byte, datagramSize-4)
			trains := make([]udp.Train, 2)
			for i, data := range [][]byte{gone[:len(there)], there} {
				for j := range there {
					there[j] = 1 // the number of the second, as a receiver checks it
				}
				head := binary.BigEndian.AppendUint32(nil, uint32(i))
				trains[i].Dst = netip.MustParseAddrPort("10.0.0.2:4791")
				trains[i].Append(head, data)
			}
			if n, err := p.sender.Send(trains); n != 2 || err != nil {
				t.Errorf("%d sent, %v", n, err)
			}
			if err := p.sender.Close(); err != nil { // which sends what is held back
				t.Error(err)
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				p.mu.Lock()
				arrived, altered := len(p.arrived), p.altered
				p.mu.Unlock()
				if arrived > 0 {
					if arrived != 1 || altered != 0 {
						t.Errorf("%d arrived, %d altered", arrived, altered)
					}
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the second doesn't arrive")
				}
			}
			if err := p.receiver.Close(); err != nil {
				t.Error(err)
			}
			p.done.Wait()
		})
	}
}
