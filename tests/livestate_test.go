package tests

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/control"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// An operator sets ANA states in the file and changes them live: the hosts of the endpoint are notified, those of
// another keep their path, and what was saved is there after a reload.
func TestLiveANA(t *testing.T) {
	t.Parallel()
	c := startANA(t)
	at := c.remote().String()
	h := dialANA(t, c)
	h.wantState(t, "tcp", nvme.ANANonOptimized)
	h.wantState(t, "rdma", nvme.ANAOptimized)

	c.change(t, "set-ana", "7", "inaccessible", "--listen", "rdma://"+at)
	if e := <-h.told["rdma"]; e != nvme.EventANAChanged {
		t.Errorf("event %v", e)
	}
	h.wantState(t, "rdma", nvme.ANAInaccessible)
	if err := h.read(t, "rdma"); !errors.Is(err, nvme.StatusANAInaccessible) {
		t.Errorf("read of an inaccessible group: %v", err)
	}
	if err := h.read(t, "tcp"); err != nil {
		t.Errorf("the other path: %v", err)
	}
	want := control.ANA{Listen: "rdma://" + at, Group: 7, State: "inaccessible"}
	if st := c.status(t); len(st.ANA) != 2 || st.ANA[0] != want && st.ANA[1] != want || st.Subsystems[0].Namespaces[0].ANAGroup != 7 {
		t.Errorf("status %+v", st)
	}
	if out := c.change(t, "show"); !strings.Contains(out, "inaccessible") {
		t.Errorf("show doesn't tell of it:\n%s", out)
	}
	c.change(t, "save")
	c.change(t, "reload")
	h.wantState(t, "rdma", nvme.ANAInaccessible)
	c.change(t, "set-ana", "7", "optimized")
	<-h.told["rdma"]
	for _, path := range transports {
		h.wantState(t, path, nvme.ANAOptimized)
		if err := h.read(t, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// startANA starts a target whose only namespace is in group 7, which is non-optimized over TCP.
func startANA(t *testing.T) *configured {
	t.Helper()
	return serveSubsystems(t, `
- nqn: `+testNQN+`
  namespaces: [{volume: "mem:16MiB", ana_group: 7}]
ana: [{group: 7, state: non-optimized, listen: "tcp://ADDR:4420"}]
`)
}

// anaHosts are hosts that connected to a target by each transport, and the notifications that they got.
type anaHosts struct {
	hosts map[string]*hostSide
	told  map[string]chan nvme.AsyncEvent
}

func dialANA(t *testing.T, c *configured) *anaHosts {
	t.Helper()
	h := &anaHosts{map[string]*hostSide{}, map[string]chan nvme.AsyncEvent{}}
	for _, path := range transports {
		events := make(chan nvme.AsyncEvent, 8)
		side := dialHost(t, c.remote(), path, func(c *host.Config) {
			c.Event = func(_ *host.Controller, e nvme.AsyncEvent) { events <- e }
		})
		t.Cleanup(func() { side.close(t) })
		h.hosts[path], h.told[path] = side, events
	}
	return h
}

// wantState checks the state of group 7 as the host of a path reads it.
func (h *anaHosts) wantState(t *testing.T, path string, want nvme.ANAState) {
	t.Helper()
	log, err := h.hosts[path].ANA(t.Context())
	if err != nil || len(log.Groups) != 1 || log.Groups[0].ID != 7 || log.Groups[0].State != want {
		t.Errorf("%s: log %+v, %v; want group 7 %v", path, log, err, want)
	}
}

func (h *anaHosts) read(t *testing.T, path string) error {
	return sendIO(t, h.hosts[path], ioOf(nvme.OpRead, 1, 0, 1), make([]byte, 4096))
}
