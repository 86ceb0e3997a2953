package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestWritesInCompany: writes that are sent together take their data along, up to the target's limit, if capsules are
// sent in packets of one size, as between two of our RNICs. With a foreign peer, data goes along if it fits in one
// packet with the command, or needs more than two packets; the target READs other data. A write that is sent alone takes
// along as much as the target accepts.
func TestWritesInCompany(t *testing.T) {
	none := func(*roce.Device) uint32 { return 0 }
	for _, c := range []struct {
		name      string
		options   func(*roce.Device) uint32 // of the target's RNIC
		mtu       verbs.MTU                 // the same
		together  int
		bytes     int
		inCapsule bool
		packets   int64 // sent by the host for each write, without acknowledgements
	}{
		{"long SENDs", (*roce.Device).VendorOptions, verbs.MTU4096, 16, 4096, true, 1},
		{"long SENDs, too much data", (*roce.Device).VendorOptions, verbs.MTU4096, 16, 4608, false, 2},
		{"long SENDs, more than jumbo frames hold", (*roce.Device).VendorOptions, verbs.MTU4096, 16, 8704, false, 3},
		{"long SENDs, short packets", (*roce.Device).VendorOptions, verbs.MTU1024, 16, 4096, true, 4},
		{"path MTU", none, verbs.MTU4096, 16, 4096, true, 2},
		{"a stranger", nil, verbs.MTU4096, 16, 4096, false, 2},
		{"a stranger, little data", nil, verbs.MTU4096, 16, 3584, true, 1},
		{"a stranger, alone", nil, verbs.MTU4096, 1, 4096, true, 2},
		{"a stranger, two packets of data", nil, verbs.MTU2048, 16, 4096, false, 3},
		{"a stranger, more packets of data", nil, verbs.MTU1024, 16, 4096, true, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCapsuleRig(t, c.options, c.mtu)
				defer r.close()
				data, err := r.tr.Alloc(c.together * capsuleStride)
				if err != nil {
					t.Fatal(err)
				}
				defer r.tr.Free(data)
				before := r.counts()
				r.writeTogether(data, c.together, c.bytes)
				after := r.counts()
				r.compare(data, c.together, c.bytes)
				want := [2]uint64{0, uint64(c.together)}
				if c.inCapsule {
					want = [2]uint64{uint64(c.together), 0}
				}
				got := [2]uint64{after.inCapsule - before.inCapsule, after.reads - before.reads}
				if got != want {
					t.Errorf("%d with data in the capsule, %d READs; want %d", got[0], got[1], want)
				}
				n, packets, acks := int64(c.together), after.packets-before.packets, after.acks-before.acks
				if packets != n*c.packets {
					t.Errorf("the host sent %d packets for %d writes, want %d each", packets, n, c.packets)
				}
				if acks > 2 {
					t.Errorf("%d acknowledgements beside %d packets of %d writes, want two at most", acks, packets, n)
				}
			})
		})
	}
}

// TestReadsInCompany: data of one packet and the response after it share a packet if the RNICs have agreed on that;
// otherwise there are as many packets as the data needs, and one for the response.
func TestReadsInCompany(t *testing.T) {
	none := func(*roce.Device) uint32 { return 0 }
	for _, c := range []struct {
		name    string
		options func(*roce.Device) uint32 // of the target's RNIC
		bytes   int
		packets int64 // sent by the target for each read, without acknowledgements
	}{
		{"agreed on", (*roce.Device).VendorOptions, 4096, 1},
		{"agreed on, with jumbo frames", (*roce.Device).VendorOptions, 8192, 1},
		{"agreed on, too much data", (*roce.Device).VendorOptions, 8704, 3},
		{"not agreed on", none, 4096, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const together = 16
				r := newCapsuleRig(t, c.options, verbs.MTU4096)
				defer r.close()
				data, err := r.tr.Alloc(2 * together * capsuleStride)
				if err != nil {
					t.Fatal(err)
				}
				defer r.tr.Free(data)
				written, read := data[:together*capsuleStride], data[together*capsuleStride:]
				r.writeTogether(written, together, c.bytes)
				before := r.answers.Load()
				r.together(nvme.OpRead, read, together, c.bytes)
				if n := r.answers.Load() - before; n != together*c.packets {
					t.Errorf("the target sent %d packets for %d reads, want %d each", n, together, c.packets)
				}
				for i := range together {
					if at := i * capsuleStride; !bytes.Equal(read[at:][:c.bytes], written[at:][:c.bytes]) {
						t.Errorf("read %d isn't what was written", i)
					}
				}
			})
		})
	}
}

// TestLongSendsOnLoopback: the RNICs of two programs agree on packets that hold 4 KiB of data and the command.
func TestLongSendsOnLoopback(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	c := r.connect(t, nil)
	defer c.Close()
	data, err := c.Alloc(16 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(data)
	before := r.listener.Counters().Reads.Load()
	var done sync.WaitGroup
	done.Add(16)
	var requests []*host.Request
	for i := range 16 {
		req := &host.Request{Data: data[i*4096:][:4096], Done: func(*host.Request) { done.Done() }}
		req.Cmd.SetIO(nvme.OpWrite, 1, uint64(i)*8, 8, 0)
		requests = append(requests, req)
	}
	c.Queues()[0].Submit(requests)
	done.Wait()
	for i, req := range requests {
		if s := req.CQE.Status(); req.Err != nil || s != 0 {
			t.Errorf("write %d: %v, status %v", i, req.Err, s)
		}
	}
	if n := r.listener.Counters().Reads.Load() - before; n != 0 {
		t.Errorf("%d READs for writes of 4 KiB", n)
	}
}

// TestLongDataOnLoopback: the RNICs of two programs agree on packets that fill most of a datagram, for reads and for
// writes.
func TestLongDataOnLoopback(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 4<<20))
	c := r.connect(t, nil)
	defer c.Close()
	ns := namespace(t, c, 1)
	const size, times = 128 << 10, 16
	datagrams := func(nic *softrnic.RNIC) uint64 { return nic.SocketStats().TxDatagrams }
	want, got := make([]byte, size), make([]byte, size)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	host, target := datagrams(r.hostNIC), datagrams(r.targetNIC)
	for i := range int64(times) {
		if _, err := ns.WriteAt(t.Context(), want, i*size); err != nil {
			t.Fatal(err)
		}
	}
	if n := datagrams(r.hostNIC) - host; n > 10*times {
		t.Errorf("the host sent %d datagrams for %d writes of %d bytes", n, times, size)
	}
	for i := range int64(times) {
		if _, err := ns.ReadAt(t.Context(), got, i*size); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("what was read at %d isn't what was written: %v", i*size, err)
		}
	}
	if n := datagrams(r.targetNIC) - target; n > 20*times {
		t.Errorf("the target sent %d datagrams for %d writes and reads of %d bytes", n, times, size)
	}
}

const capsuleStride = 16384 // between two writes

// capsuleRig is a host and a target on a simulated network.
type capsuleRig struct {
	t        *testing.T
	tn, hn   *simNIC
	target   *target.Target
	listener *rdma.Listener
	tr       *rdma.Transport
	ctrl     *host.Controller

	packets, acks atomic.Int64 // sent by the host
	answers       atomic.Int64 // sent by the target, without acknowledgements
}

func newCapsuleRig(t *testing.T, options func(*roce.Device) uint32, mtu verbs.MTU) *capsuleRig {
	t.Helper()
	n := simnet.New(1)
	n.SetDefault(simnet.Link{Latency: 10 * time.Microsecond})
	r := &capsuleRig{t: t}
	n.SetFilter(r.count)
	r.tn, r.hn = simNICOf(t, n, simTarget, mtu, options), newSimNIC(t, n, simHost)
	var err error
	r.target, err = target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: memory(t, 1<<20)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.listener = listen(t, r.tn, simNVMe, r.target, rdma.TargetConfig{Memory: 8 << 20})
	r.tr = newTransport(t, r.hn, rdma.HostConfig{})
	r.ctrl, err = host.Connect(t.Context(), host.Config{
		Transport: r.tr, Remote: simNVMe, SubNQN: testNQN, Queues: 1, QueueSize: 32, KATO: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.settle() // the asynchronous event requests are sent after Connect has returned
	return r
}

// capsuleCounts is what has happened so far.
type capsuleCounts struct {
	inCapsule, reads uint64
	packets, acks    int64
}

func (r *capsuleRig) counts() capsuleCounts {
	return capsuleCounts{
		inCapsule: r.tr.Counters().InCapsule.Load(),
		reads:     r.listener.Counters().Reads.Load(),
		packets:   r.packets.Load(),
		acks:      r.acks.Load(),
	}
}

// count is the network's filter; it sees all packets.
func (r *capsuleRig) count(d *simnet.Datagram) simnet.Action {
	switch host, ack := d.Src == simHost, wire.Opcode(d.Payload[0]) == wire.RCAcknowledge; {
	case host && ack:
		r.acks.Add(1)
	case host:
		r.packets.Add(1)
	case !ack:
		r.answers.Add(1)
	}
	return simnet.Action{}
}

// writeTogether writes n times size bytes at once.
func (r *capsuleRig) writeTogether(data []byte, n, size int) {
	r.t.Helper()
	for i := range n {
		for k, b := 0, data[i*capsuleStride:][:size]; k < size; k++ {
			b[k] = byte(i + k/512)
		}
	}
	r.together(nvme.OpWrite, data, n, size)
}

// together submits n commands for size bytes at once, and waits until none of their packets is in flight.
func (r *capsuleRig) together(op nvme.Opcode, data []byte, n, size int) {
	r.t.Helper()
	var done sync.WaitGroup
	done.Add(n)
	var requests []*host.Request
	for i := range n {
		req := &host.Request{Data: data[i*capsuleStride:][:size], Done: func(*host.Request) { done.Done() }}
		req.Cmd.SetIO(op, 1, uint64(i)*capsuleStride/512, uint32(size/512), 0)
		requests = append(requests, req)
	}
	r.ctrl.Queues()[0].Submit(requests)
	done.Wait()
	for i, req := range requests {
		if s := req.CQE.Status(); req.Err != nil || s != 0 {
			r.t.Errorf("command %d: %v, status %v", i, req.Err, s)
		}
	}
	r.settle()
}

// settle waits until no packet is in flight.
func (r *capsuleRig) settle() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// compare checks that the volume contains what was written.
func (r *capsuleRig) compare(data []byte, n, size int) {
	r.t.Helper()
	ns, err := r.ctrl.Namespace(r.t.Context(), 1)
	if err != nil {
		r.t.Fatal(err)
	}
	got := make([]byte, size)
	for i := range n {
		if _, err := ns.ReadAt(r.t.Context(), got, int64(i)*capsuleStride); err != nil || !bytes.Equal(got, data[i*capsuleStride:][:size]) {
			r.t.Errorf("write %d isn't what the volume has: %v", i, err)
		}
	}
}

func (r *capsuleRig) close() {
	r.t.Helper()
	if err := errors.Join(r.ctrl.Close(), r.tr.Close()); err != nil {
		r.t.Error(err)
	}
	r.hn.close(r.t)
	if err := errors.Join(r.listener.Close(), r.target.Close(context.Background())); err != nil {
		r.t.Error(err)
	}
	r.tn.close(r.t)
}
