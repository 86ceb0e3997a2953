package rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// lesserCM is an RNIC that offers less than the software RNIC does, and insists on that.
type lesserCM struct {
	verbs.ConnectionManager
	attr              func(*verbs.DeviceAttr) // may be nil
	windows, onDemand bool
	full              error // why no memory can be registered; nil if it can
}

type lesserID struct {
	verbs.CMID
	cm    *lesserCM
	reads uint8 // of a request: how many the peer serves at once
}

type lesserDevice struct {
	verbs.Device
	cm *lesserCM
}

type lesserPD struct {
	verbs.PD
	cm *lesserCM
}

type lesserQP struct {
	verbs.QP
	readSGE int
}

func (c *lesserCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	id, err := c.ConnectionManager.CreateID(func(e verbs.CMEvent) {
		e.ID = lesserID{e.ID, c, e.Param.InitiatorDepth}
		handler(e)
	})
	return lesserID{CMID: id, cm: c}, err
}

func (i lesserID) Device() verbs.Device { return lesserDevice{i.CMID.Device(), i.cm} }

func (i lesserID) CreateQP(pd verbs.PD, init verbs.QPInitAttr) (verbs.QP, error) {
	attr := i.Device().Attr()
	if init.MaxSendWR > attr.MaxQPWR {
		return nil, fmt.Errorf("%w: %d send work requests, at most %d", verbs.ErrInvalid, init.MaxSendWR, attr.MaxQPWR)
	}
	qp, err := i.CMID.CreateQP(pd.(lesserPD).PD, init)
	return lesserQP{qp, attr.MaxSGERd}, err
}

// Accept takes no more READs at once than the peer serves, as a provider that leaves it to the consumer to ask for less.
func (i lesserID) Accept(p verbs.ConnParam) error {
	if p.InitiatorDepth > i.reads {
		return fmt.Errorf("%w: %d READs at once, the peer serves %d", verbs.ErrInvalid, p.InitiatorDepth, i.reads)
	}
	return i.CMID.Accept(p)
}

func (d lesserDevice) Attr() verbs.DeviceAttr {
	attr := d.Device.Attr()
	if d.cm.attr != nil {
		d.cm.attr(&attr)
	}
	return attr
}

func (d lesserDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return lesserPD{pd, d.cm}, err
}

func (p lesserPD) AllocMW() (verbs.MW, error) {
	if !p.cm.windows {
		return nil, verbs.ErrUnsupported
	}
	return p.PD.AllocMW()
}

func (p lesserPD) RegMR(buf []byte, access verbs.Access) (verbs.MR, error) {
	if p.cm.full != nil {
		return nil, p.cm.full
	}
	if !p.cm.onDemand && access&verbs.AccessOnDemand != 0 {
		return nil, verbs.ErrUnsupported
	}
	return p.PD.RegMR(buf, access)
}

func (q lesserQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if wrs[i].Opcode == verbs.WRRDMARead && len(wrs[i].SGList) > q.readSGE {
			return 0, fmt.Errorf("%w: READ into %d pieces", verbs.ErrInvalid, len(wrs[i].SGList))
		}
	}
	return q.QP.PostSend(wrs)
}

// lesserRig is a target and a host on RNICs that offer less.
func lesserRig(t *testing.T, v blockdev.Volume, cm lesserCM) *rig {
	r := newRig(t, rdma.TargetConfig{}, v)
	r.addr = netip.AddrPortFrom(r.addr.Addr(), r.addr.Port()+1)
	ofTarget, ofHost := cm, cm
	ofTarget.ConnectionManager, ofHost.ConnectionManager = r.targetNIC, r.hostNIC
	l := listen(t, &ofTarget, r.addr, r.target, rdma.TargetConfig{})
	t.Cleanup(func() { _ = l.Close() })
	r.transport = newTransport(t, &ofHost, rdma.HostConfig{})
	t.Cleanup(func() { _ = r.transport.Close() })
	return r
}

// TestLesserDevice moves data over RNICs that lack what others than the software RNIC may lack: the binding asks for no
// more than the device has.
func TestLesserDevice(t *testing.T) {
	for _, c := range []struct {
		name string
		cm   lesserCM
	}{
		{"READs into one piece", lesserCM{windows: true, onDemand: true, attr: func(a *verbs.DeviceAttr) { a.MaxSGERd = 1 }}},
		{"work requests with two pieces", lesserCM{windows: true, onDemand: true, attr: func(a *verbs.DeviceAttr) { a.MaxSGE = 2 }}},
		{"short send queues", lesserCM{windows: true, onDemand: true, attr: func(a *verbs.DeviceAttr) { a.MaxQPWR = 24 }}},
		{"shorter send queues", lesserCM{windows: true, onDemand: true, attr: func(a *verbs.DeviceAttr) { a.MaxQPWR = 8 }}},
		{"one READ at once", lesserCM{windows: true, onDemand: true, attr: func(a *verbs.DeviceAttr) { a.MaxQPRdAtom = 1 }}},
		{"no windows", lesserCM{onDemand: true}},
		{"memory only pinned", lesserCM{windows: true}},
		{"all of it", lesserCM{attr: func(a *verbs.DeviceAttr) { a.MaxSGERd, a.MaxQPWR, a.MaxQPRdAtom = 1, 100, 1 }}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := memory(t, 16<<20).(blockdev.Memory)
			for _, region := range v.Regions() {
				region.File = true
			}
			r := lesserRig(t, v, c.cm)
			ctrl := r.connect(t, nil)
			defer ctrl.Close()
			moveAtOnce(t, ctrl)
		})
	}
}

// TestUnusableDevice: an RNIC whose work requests take one piece of memory can't carry capsules, nor can one that
// registers no memory. A host's error says what is missing, and so does a target's log.
func TestUnusableDevice(t *testing.T) {
	for name, x := range map[string]struct {
		cm   lesserCM
		is   error
		says string
	}{
		"work requests with one piece": {lesserCM{attr: func(a *verbs.DeviceAttr) { a.MaxSGE = 1 }}, verbs.ErrUnsupported,
			" has 1 scatter/gather entries per work request (MaxSGE): want at least 2"},
		"no memory": {lesserCM{full: errors.New("more than may be locked")}, verbs.ErrNoMemory, ": more than may be locked"},
	} {
		t.Run(name, func(t *testing.T) { unusable(t, x.cm, x.is, x.says) })
	}
}

func unusable(t *testing.T, lesser lesserCM, is error, says string) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	ofHost, ofTarget := lesser, lesser
	ofHost.ConnectionManager, ofTarget.ConnectionManager = r.hostNIC, r.targetNIC
	missing := func(nic *softrnic.RNIC) string { return nic.Device().Attr().Name + says }
	tr := newTransport(t, &ofHost, rdma.HostConfig{})
	defer tr.Close()
	attr := host.QueueAttr{Remote: r.addr, Size: 32, Sink: noSink{}}
	if _, err := tr.Dial(t.Context(), attr); !errors.Is(err, is) || !strings.Contains(err.Error(), missing(r.hostNIC)) {
		t.Errorf("the host's RNIC: %v", err)
	}

	var log bytes.Buffer
	attr.Remote = netip.AddrPortFrom(r.addr.Addr(), r.addr.Port()+1)
	l := listen(t, &ofTarget, attr.Remote, r.target, rdma.TargetConfig{Log: slog.New(slog.NewTextHandler(&log, nil))})
	var reject *rdma.RejectError
	if _, err := r.transport.Dial(t.Context(), attr); !errors.As(err, &reject) || reject.Status != rdma.RejectNoResources {
		t.Errorf("the target's RNIC: %v", err)
	}
	if n := l.Counters(); n.Rejected.Load() != 1 || n.Limited.Load() != 0 {
		t.Errorf("%d connections were refused, %d of them for a limit", n.Rejected.Load(), n.Limited.Load())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), missing(r.targetNIC)) {
		t.Errorf("the target's log doesn't say what is missing:\n%s", log.String())
	}
}

// moveAtOnce writes pieces of 512 KiB and reads them back, all at once, from registered and from other memory.
func moveAtOnce(t *testing.T, c *host.Controller) {
	const size, pieces = 512 << 10, 16
	ns := namespace(t, c, 1)
	registered, err := c.Alloc(size * pieces / 2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(registered)
	var bufs [][]byte
	for i := range pieces / 2 {
		bufs = append(bufs, registered[i*size:][:size], make([]byte, size))
	}
	var wg sync.WaitGroup
	for i, b := range bufs {
		wg.Go(func() {
			want := bytes.Repeat([]byte{byte(i + 1), 7, 0}, size/3+1)[:size]
			copy(b, want)
			if _, err := ns.WriteAt(t.Context(), b, int64(i)*size); err != nil {
				t.Errorf("write %d: %v", i, err)
			}
			clear(b)
			if _, err := ns.ReadAt(t.Context(), b, int64(i)*size); err != nil || !bytes.Equal(b, want) {
				t.Errorf("read %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}
