package tests

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// connectSink receives the answer to the only command of a connection.
type connectSink struct {
	answer chan nvme.Completion
	closed chan struct{}
}

func (s *connectSink) Completed(cqe *nvme.Completion) bool { s.answer <- *cqe; return true }
func (s *connectSink) Closed(error)                        { close(s.closed) }

// TestWrongConnect: every wrong field of Connect gets its status over every transport, and the result says where the
// field is.
func TestWrongConnect(t *testing.T) {
	noLeaks(t)
	const (
		closedNQN = "nqn.2024-01.com.example:closed"
		invalid   = nvme.StatusConnectInvalidParameter
	)
	_, remote := serveConfig(t, target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true}, {NQN: closedNQN, Hosts: []string{"nqn.2024-01.com.example:friend"}},
	}})
	name := func(at int, s string) func(*nvme.Command, []byte) {
		return func(_ *nvme.Command, d []byte) { clear(d[at : at+256]); copy(d[at:], s) }
	}
	for _, path := range paths {
		h := dialPair(t, remote, path)
		for _, tc := range []struct {
			name   string
			change func(c *nvme.Command, data []byte)
			status nvme.Status
			result nvme.ConnectInvalid
		}{
			{"record format", func(c *nvme.Command, _ []byte) { c[nvme.ConnectOffRECFMT] = 1 }, nvme.StatusConnectFormat, 0},
			{"queue of one", func(c *nvme.Command, _ []byte) { binary.LittleEndian.PutUint16(c[nvme.ConnectOffSQSIZE:], 0) }, invalid, nvme.InvalidCommand(44)},
			{"queue too large", func(c *nvme.Command, _ []byte) { binary.LittleEndian.PutUint16(c[nvme.ConnectOffSQSIZE:], 0xffff) }, invalid, nvme.InvalidCommand(44)},
			{"static controller", func(_ *nvme.Command, d []byte) { binary.LittleEndian.PutUint16(d[nvme.ConnectDataOffCNTLID:], 1) }, invalid, nvme.InvalidData(16)},
			{"unknown subsystem", name(nvme.ConnectDataOffSUBNQN, testNQN+"x"), invalid, nvme.InvalidData(256)},
			{"no subsystem", name(nvme.ConnectDataOffSUBNQN, ""), invalid, nvme.InvalidData(256)},
			{"host name that can't be printed", name(nvme.ConnectDataOffHOSTNQN, "nqn.\n"), invalid, nvme.InvalidData(512)},
			{"host not allowed", name(nvme.ConnectDataOffSUBNQN, closedNQN), nvme.StatusConnectInvalidHost, 0},
		} {
			t.Run(path+"/"+tc.name, func(t *testing.T) {
				cqe := sendConnect(t, h, tc.change)
				if got, want := cqe.Status(), tc.status|nvme.StatusDNR; got != want {
					t.Errorf("status %#x (%v), want %#x", uint16(got), got, uint16(want))
				}
				if got := nvme.ConnectInvalid(cqe.DW0()); got != tc.result {
					t.Errorf("result %#x (%v), want %#x (%v)", uint32(got), got, uint32(tc.result), tc.result)
				}
			})
		}
		h.close(t)
	}
}

// sendConnect makes an admin connection over the transport of h and sends a Connect that change has altered.
func sendConnect(t *testing.T, h *hostSide, change func(*nvme.Command, []byte)) nvme.Completion {
	t.Helper()
	cfg := h.Config()
	sink := &connectSink{answer: make(chan nvme.Completion, 1), closed: make(chan struct{})}
	q, err := h.Transport.Dial(t.Context(), host.QueueAttr{
		Remote: cfg.Remote, Local: cfg.Local, CNTLID: nvme.CNTLIDDynamic, Size: nvme.AdminQueueSize, Sink: sink,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = q.Close()
		<-sink.closed
	}()
	id := nvme.NewHostID()
	d := nvme.ConnectData{HostID: id, CNTLID: nvme.CNTLIDDynamic, SubNQN: testNQN, HostNQN: id.NQN()}
	r := &host.Request{Done: func(*host.Request) {}}
	if r.Data, err = d.AppendTo(nil); err != nil {
		t.Fatal(err)
	}
	r.Cmd.SetConnect(0, nvme.AdminQueueSize-1, 0, 0)
	change(&r.Cmd, r.Data)
	q.Submit([]*host.Request{r})
	select {
	case cqe := <-sink.answer:
		return cqe
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
	return nvme.Completion{}
}
