package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = r.Read(b)
	return b
}

// transferSizes are the sizes that the tests move: 512 B to 1 MiB, and odd multiples of a block.
var transferSizes = []int{512, 1024, 3 * 512, 4096, 8192, 8192 + 512, 16 << 10, 17 << 10, 64 << 10,
	100 << 10, 128 << 10, 255 * 512, 512 << 10, 1 << 20}

// TestTransfer writes and reads every size with every combination of parameters that can be agreed.
func TestTransfer(t *testing.T) {
	for _, digests := range []pdu.Digests{0, pdu.DigestHeader, pdu.DigestData, pdu.DigestHeader | pdu.DigestData} {
		for _, maxH2C := range []int{4096, 0} {
			for _, inCapsule := range []int{0, 8192} {
				name := fmt.Sprintf("digests=%v,MAXH2CDATA=%d,inCapsule=%d", digests, maxH2C, inCapsule)
				t.Run(name, func(t *testing.T) {
					tt := newTestTarget(t, TargetConfig{MaxH2CData: maxH2C, InCapsule: 8192})
					p := newPair(t, tt.Addr(), clientOptions{
						host: HostConfig{HeaderDigest: digests&pdu.DigestHeader != 0,
							DataDigest: digests&pdu.DigestData != 0},
						inCapsule: inCapsule, noFlow: maxH2C == 0,
					})
					transferAll(t, p)
					checkCounters(t, tt, p, inCapsule, maxH2C)
				})
			}
		}
	}
}

func transferAll(t *testing.T, p *pair) {
	for i, n := range transferSizes {
		want := randomBytes(uint64(n), n)
		off := i * (2 << 20)
		p.io.must(ioCommand(nvme.OpWrite, off, n), want)
		got := make([]byte, n)
		p.io.must(ioCommand(nvme.OpRead, off, n), got)
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes differ after writing and reading them", n)
		}
	}
}

func checkCounters(t *testing.T, tt *testTarget, p *pair, inCapsule, maxH2C int) {
	t.Helper()
	in, h := &tt.Counters().In, p.tr.Counters()
	inline := 0
	for _, n := range transferSizes {
		if n <= inCapsule {
			inline++
		}
	}
	if got, want := int(h.In.PDUs[pdu.TypeR2T].Load()), len(transferSizes)-inline; got != want {
		t.Errorf("%d R2Ts for %d writes that don't fit into a capsule", got, want)
	}
	if maxH2C == 0 {
		if got, want := int(in.PDUs[pdu.TypeH2CData].Load()), len(transferSizes)-inline; got != want {
			t.Errorf("%d H2CData PDUs for %d R2Ts", got, want)
		}
		if got := int(h.Successes.Load()); got < len(transferSizes) {
			t.Errorf("%d SUCCESS flags for %d reads without SQ flow control", got, len(transferSizes))
		}
	} else if got := h.Successes.Load(); got != 0 {
		t.Errorf("%d SUCCESS flags with SQ flow control", got)
	}
}

// TestRandom keeps many commands of all kinds outstanding, each on its own range.
func TestRandom(t *testing.T) {
	for _, cfg := range []struct {
		name string
		o    clientOptions
	}{
		{"plain", clientOptions{inCapsule: 8192, size: 33}},
		{"digests", clientOptions{inCapsule: 8192, size: 33, noFlow: true,
			host: HostConfig{HeaderDigest: true, DataDigest: true}}},
	} {
		t.Run(cfg.name, func(t *testing.T) {
			// Little memory, so that commands wait for it.
			tt := newTestTarget(t, TargetConfig{Memory: 2 << 20, MaxH2CData: 64 << 10})
			p := newPair(t, tt.Addr(), cfg.o)
			const workers, rounds = 32, 20
			done := make(chan error, workers)
			for w := range workers {
				startWorker(p.io, w, rounds, done)
			}
			for range workers {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			if tt.Counters().MemoryWaits.Load() == 0 {
				t.Error("no command waited for memory")
			}
		})
	}
}

// startWorker writes, reads back and compares on its own 1 MiB, from within the completions.
func startWorker(c *client, w, rounds int, done chan<- error) {
	rnd := rand.New(rand.NewPCG(uint64(w), 7))
	var want []byte
	off := 0
	r := &host.Request{}
	next := func() {
		n := transferSizes[rnd.IntN(len(transferSizes))]
		off = w<<20 + rnd.IntN((1<<20-n)/block+1)*block
		want = randomBytes(rnd.Uint64(), n)
		r.Cmd, r.Data = ioCommand(nvme.OpWrite, off, n), bytes.Clone(want)
		c.submit(r)
	}
	r.Done = func(*host.Request) {
		switch {
		case r.Err != nil || !r.CQE.Status().OK():
			done <- fmt.Errorf("worker %d: %w, status %#x", w, r.Err, uint16(r.CQE.Status()))
		case r.Cmd.Opcode() == nvme.OpWrite:
			n := len(want)
			r.Cmd, r.Data = ioCommand(nvme.OpRead, off, n), make([]byte, n)
			c.submit(r)
		case !bytes.Equal(r.Data, want):
			done <- fmt.Errorf("worker %d: %d bytes differ", w, len(want))
		case rounds == 0:
			done <- nil
		default:
			rounds--
			next()
		}
	}
	next()
}
