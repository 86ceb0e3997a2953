package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func TestReadLogInPieces(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f)
	defer closeController(t, c)
	b := make([]byte, 10000)
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogError, Offset: 400}, b); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 4 {
		if v := binary.LittleEndian.Uint32(b[i:]); v != uint32(i+400)/4 {
			t.Fatalf("byte %d holds dword %d", i, v)
		}
	}
	pieces := slices.DeleteFunc(f.arrived(), func(c nvme.Command) bool { return c.Opcode() != nvme.OpGetLogPage })
	for i, p := range pieces {
		if last := i == len(pieces)-1; p.LogRAE() == last || p.LogLength() > uint64(c.Limits().MaxTransfer) {
			t.Errorf("piece %d: RAE %v, %d bytes", i, p.LogRAE(), p.LogLength())
		}
	}
	if len(pieces) != 2 {
		t.Errorf("%d pieces", len(pieces))
	}
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogError}, b[:3]); !errors.Is(err, ErrRange) {
		t.Error(err)
	}
	if err := c.ReadLog(t.Context(), nvme.GetLogPage{LID: nvme.LogANA}, b); !errors.Is(err, nvme.StatusInvalidLogPage) {
		t.Error(err)
	}
	if s, err := c.SMART(t.Context()); err != nil || s.Kelvin() != 300 {
		t.Error(s, err)
	}
	if _, err := c.ANA(t.Context()); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

func TestLossOfOneQueueIsLossOfAll(t *testing.T) {
	f := newFakeTarget()
	var log bytes.Buffer
	c := connect(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	cause := errors.New("reset by peer")
	f.queues[2].fail(cause)
	<-c.Done()
	if err := c.Err(); !errors.Is(err, ErrLost) || !errors.Is(err, cause) {
		t.Error(err)
	}
	if err := c.Close(); !errors.Is(err, cause) {
		t.Error(err)
	}
	for _, q := range f.queues {
		<-q.ended
	}
	want := fmt.Sprintf(`msg="controller lost" transport=%v remote=%v subsystem=%s cntlid=%d err=`, c.cfg.Transport.Type(), c.Remote(), c.cfg.SubNQN, c.CNTLID())
	if !strings.Contains(log.String(), want) || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log says\n%swant %s", &log, want)
	}
}

// TestQueuesAppended: what two callers append to a controller's queues doesn't meet, however the slice has grown.
func TestQueuesAppended(t *testing.T) {
	for n := range 5 {
		c := &Controller{io: make([]*Queue, n, n+1)}
		first, second := new(Queue), new(Queue)
		one := append(c.Queues(), first)
		if _ = append(c.Queues(), second); one[n] != first {
			t.Errorf("another append to %d queues changed the first", n)
		}
	}
}

func TestFeatures(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f)
	defer closeController(t, c)
	if v, err := c.Feature(t.Context(), nvme.FeatKATO, nvme.SELCurrent, 0, 77, nil); err != nil || v != 77 {
		t.Error(v, err)
	}
	if v, err := c.SetFeature(t.Context(), nvme.FeatVolatileWC, 0, 1, nil); err != nil || v != 1 {
		t.Error(v, err)
	}
}

// withoutMemory is a transport that has no memory left.
type withoutMemory struct{ *fakeTarget }

func (withoutMemory) Alloc(int) ([]byte, error) { return nil, errors.New("no memory") }

// TestNoMemory: commands of the host itself don't need the transport's memory.
func TestNoMemory(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f, func(c *Config) { c.Transport = withoutMemory{f} })
	if got := c.Identify().ModelNumber(); got != "fake" {
		t.Errorf("model %q", got)
	}
	closeController(t, c)
}

// losing is a transport whose admin connection breaks while an I/O queue is being connected.
type losing struct{ *fakeTarget }

func (l losing) Dial(ctx context.Context, a QueueAttr) (TransportQueue, error) {
	if a.QID != 0 {
		l.queues[0].fail(errors.New("unplugged"))
		<-l.queues[0].ended
	}
	return l.fakeTarget.Dial(ctx, a)
}

// TestLostWhileDialing: a connection that is made when the controller is already lost is closed.
func TestLostWhileDialing(t *testing.T) {
	f := newFakeTarget()
	cfg := f.config()
	cfg.Transport = losing{f}
	if _, err := Connect(t.Context(), cfg); !errors.Is(err, ErrLost) {
		t.Errorf("Connect returned %v", err)
	}
	if len(f.queues) != 2 {
		t.Fatalf("%d connections", len(f.queues))
	}
	select {
	case <-f.queues[1].ended:
	default:
		t.Error("the connection of the I/O queue is still open")
	}
}
