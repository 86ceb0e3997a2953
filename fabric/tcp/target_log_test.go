package tcp

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestNoneAccepted: what keeps a listener from accepting any connection is logged once, with its own address and no
// host's.
func TestNoneAccepted(t *testing.T) {
	var text lockedBuffer
	l, err := ListenTarget(anyPort, newTestTarget(t, TargetConfig{}).engine, TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.listener.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the log", func() bool { return strings.Contains(text.String(), "\n") })
	time.Sleep(3 * acceptPause)
	line, more, _ := strings.Cut(text.String(), "\n")
	if more != "" {
		t.Errorf("said again: %s", more)
	}
	if !strings.Contains(line, "not accepted") || strings.Contains(line, "remote=") || !strings.Contains(line, " local="+l.Addr().String()) ||
		!strings.Contains(line, `err="nvme/tcp accept: `) {
		t.Error(line)
	}
}

// TestEngineSpeaks: the engine logs why it ended a connection, so the listener doesn't.
func TestEngineSpeaks(t *testing.T) {
	engine := newLimitedTarget(t, TargetConfig{}, newTestVolume(t), target.Limits{ConnectTimeout: 20 * time.Millisecond}).engine
	var text lockedBuffer
	l, err := ListenTarget(anyPort, engine, TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	for _, err := range []error{target.ErrKeepAlive, target.ErrAuthentication, target.ErrControllerGone, target.ErrNotAllowed, target.ErrGaveWay} {
		l.report(anyPort, err)
	}
	if err := l.Close(); err != nil { // returns after everything is logged
		t.Error(err)
	}
	if s := text.String(); s != "" {
		t.Error(s)
	}
}

// TestNothingToWarnOf: a probe of the port is no warning, and a host whose Connect the engine refused, and logged, and
// that closes the connection then, is none of the listener's business.
func TestNothingToWarnOf(t *testing.T) {
	var text lockedBuffer
	l, err := ListenTarget(anyPort, newTestTarget(t, TargetConfig{}).engine, TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	transport, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	ctrl, err := host.Connect(t.Context(), host.Config{Transport: transport, Remote: l.Addr(), SubNQN: "nqn.2026-11.org.example:absent"})
	if err == nil {
		_ = ctrl.Close()
		t.Fatal("there is such a subsystem")
	}
	waitFor(t, "the end of the connection", func() bool { return l.Counters().Connections.Load() == 0 })
	if s := text.String(); s != "" {
		t.Errorf("of a refused host: %s", s)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	waitFor(t, "the log", func() bool { return text.String() != "" })
	if s := text.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "level=INFO") || !strings.Contains(s, ErrPeerClosed.Error()) {
		t.Errorf("of a probe: %s", s)
	}
}

// TestOffenderIsNamed: what is logged of a host that violates the protocol, or says that we do, names it by the key that
// every message has for it.
func TestOffenderIsNamed(t *testing.T) {
	termReq := make([]byte, 24)
	termReq[0], termReq[2], termReq[4] = byte(pdu.TypeH2CTermReq), 24, 24 // PDU-Type, HLEN, PLEN
	termReq[8] = byte(pdu.FESSequence)
	virtually(t, func(t *testing.T, n socket.Network) {
		cfg := TargetConfig{BusyPoll: NoBusyPoll, Network: n}
		engine := newTestTarget(t, cfg).engine
		var text lockedBuffer
		cfg.Log = slog.New(slog.NewTextHandler(&text, nil))
		l, err := ListenTarget(anyPort, engine, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for what, sent := range map[string][]byte{"of another protocol": bytes.Repeat([]byte("GET /"), 40), "a terminate request": termReq} {
			conn, err := n.Dial(t.Context(), netip.Addr{}, l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			newRaw(t, peerOf(conn)).send(sent)
			remote := " remote=" + conn.LocalAddr().String() + " "
			waitFor(t, "the log", func() bool { return strings.Contains(text.String(), conn.LocalAddr().String()) })
			if !strings.Contains(text.String(), remote) {
				t.Errorf("%s: there is no%sin\n%s", what, remote, text.String())
			}
		}
	})
}

// lockedBuffer is a buffer that another goroutine may write to meanwhile.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
