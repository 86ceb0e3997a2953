package multipath

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestOtherNamespace: a path that leads to another namespace doesn't join, and says why.
func TestOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		v, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		other := newTarget(t, v, func(c *target.NamespaceConfig) { c.UUID = [16]byte{1} })
		defer other.Close(context.Background())
		s, n := r.connect()
		defer r.close(s)
		r.links[1].cut()
		r.links[1].restore(other)
		time.Sleep(time.Second)
		p := s.Paths()[1]
		if p.State != Live || !errors.Is(p.Access[0].Err, ErrIdentity) || !strings.Contains(p.Access[0].Err.Error(), "UUID 01000000-") {
			t.Errorf("%+v", p)
		}
		for range 10 {
			mustWrite(t, n, 9, 0)
		}
		if b := make([]byte, 4096); func() bool { readVolume(t, v, b); return b[0] == 9 }() {
			t.Error("it was written to")
		}
		r.links[0].cut()
		if _, err := n.ReadAt(t.Context(), make([]byte, 4096), 0); !errors.Is(err, ErrNoPath) && !errors.Is(err, ErrIdentity) {
			t.Errorf("with that path alone: %v", err)
		}
	})
}

// TestConnect: one live path is enough, and the others are still tried; if none is live, or one is refused for
// good, the error names them.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.links[0].restore(nil)
		s, n := r.connect()
		mustWrite(t, n, 1, 0)
		if st := s.Paths()[0]; st.State != Connecting || !errors.Is(st.Err, syscall.ECONNREFUSED) {
			t.Errorf("%+v", st)
		}
		r.links[0].restore(r.tgt)
		time.Sleep(time.Second)
		if state(s, 0) != Live || s.Paths()[0].Counters.Losses.Load() != 0 {
			t.Errorf("%+v", s.Paths()[0])
		}
		if len(s.Controllers()) != 2 {
			t.Errorf("%d controllers", len(s.Controllers()))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		r.links[0].restore(nil)
		cfg := r.config()
		for i := range cfg.Paths {
			cfg.Paths[i].SubNQN = "nqn.2024-01.com.example:none"
		}
		for range 100 { // in whatever order paths end and Connect looks at them
			_, err := Connect(t.Context(), cfg)
			if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, nvme.StatusConnectInvalidParameter) {
				t.Fatalf("Connect: %v", err)
			}
		}
		cfg.Paths[1].HostNQN = "nqn.2024-01.com.example:other"
		if _, err := Connect(t.Context(), cfg); !errors.Is(err, host.ErrConfig) || !strings.Contains(err.Error(), "Paths[1]") {
			t.Errorf("two hosts: %v", err)
		}
		r.close(s)
	})
}

// mute is a path whose controller never answers.
type mute struct{ *link }

func (mute) Dial(ctx context.Context, _ host.QueueAttr) (host.TransportQueue, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestConnectMute: a Connect that has run out of time names the paths that it waited for.
func TestConnectMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.links[0].restore(nil)
		cfg := r.config()
		cfg.Paths[1].Transport = mute{r.links[1]}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Connect(ctx, cfg)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("Connect: %v", err)
		}
		for _, p := range cfg.Paths {
			if !strings.Contains(err.Error(), p.Remote.String()) {
				t.Errorf("Connect doesn't name %v: %v", p.Remote, err)
			}
		}
		if err := r.tgt.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := r.volume.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestConfigIsCopied: the caller may use its slice of paths again.
func TestConfigIsCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		cfg := r.config()
		s, err := Connect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close(s)
		cfg.Paths[0].SubNQN = "nqn.2024-01.com.example:none"
		if s.SubNQN() != testNQN {
			t.Errorf("the subsystem is now %s", s.SubNQN())
		}
	})
}

// TestAddPath: a path can be added later, once.
func TestAddPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect(func(c *Config) { c.Paths = c.Paths[:1] })
		defer r.close(s)
		for range 2 {
			if err := s.AddPath(r.config().Paths[1]); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(s.Paths()) != 2 || state(s, 1) != Live {
			t.Errorf("%+v", s.Paths())
		}
		r.links[0].cut()
		mustRead(t, n, 0, 0)
	})
}

// TestAddPathAtOnce: a path that several goroutines add at the same time exists once, and none is added to a
// subsystem that is closed in the meantime.
func TestAddPathAtOnce(t *testing.T) {
	r := newRig(t, 1)
	s, _ := r.connect()
	const paths = 50
	var all sync.WaitGroup
	add := func(i int) error {
		cfg := r.config().Paths[0]
		cfg.Local = netip.AddrFrom4([4]byte{127, 0, 1, byte(i)})
		return s.AddPath(cfg)
	}
	for i := range paths {
		for range 4 {
			all.Go(func() {
				if err := add(i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	names := map[string]bool{}
	for _, p := range s.Paths() {
		names[p.Name()] = true
	}
	if len(s.Paths()) != 1+paths || len(names) != 1+paths {
		t.Errorf("%d paths by %d names, want %d", len(s.Paths()), len(names), 1+paths)
	}
	for i := range paths {
		all.Go(func() {
			if err := add(paths + i); err != nil && !errors.Is(err, host.ErrClosed) {
				t.Error(err)
			}
		})
	}
	r.close(s)
	all.Wait()
}

// TestPlainNamespace: what is read through a controller directly is independent of paths, even with requests that
// paths carried before.
func TestPlainNamespace(t *testing.T) {
	r := newRig(t, 1)
	s, n := r.connect()
	plain, err := n.Controller().Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for range 20 {
		mustWrite(t, n, 1, 0)
		if _, err := plain.ReadAt(t.Context(), buf, 0); err != nil {
			t.Fatal(err)
		}
	}
	if p := s.Paths()[0]; p.UnderWay != 0 || p.Counters.Begun.Load() != 20 {
		t.Errorf("%d under way after %d", p.UnderWay, p.Counters.Begun.Load())
	}
	r.close(s)
}

// TestNamespacesUnusable: a namespace that no path can use doesn't hide the others.
func TestNamespacesUnusable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, _ := r.connect()
		defer r.close(s)
		r.addNamespace(target.NamespaceConfig{})
		for _, l := range r.links {
			l.set(func(l *link) {
				l.answerAdmin = func(cmd *nvme.Command, cqe *nvme.Completion) {
					if cmd.Opcode() == nvme.OpIdentify && cmd.NSID() == 2 {
						cqe.SetStatus(nvme.StatusInternalError | nvme.StatusDNR)
					}
				}
			})
		}
		all, err := s.Namespaces(t.Context())
		if len(all) != 1 || all[0].ID != 1 || !errors.Is(err, nvme.StatusInternalError) {
			t.Errorf("%d namespaces, %v", len(all), err)
		}
	})
}

// TestNamespaceOfNoPath: if no path leads to a namespace, the error says of each why, except of one whose controller
// doesn't have the namespace, as long as another has it.
func TestNamespaceOfNoPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		s, _ := r.connect()
		defer r.close(s)
		r.addNamespace(target.NamespaceConfig{})
		answers := []nvme.Status{nvme.StatusInvalidNamespace, nvme.StatusInternalError, nvme.StatusOperationDenied}
		for i, l := range r.links {
			l.set(func(l *link) {
				l.answerAdmin = func(cmd *nvme.Command, cqe *nvme.Completion) {
					if cmd.Opcode() == nvme.OpIdentify && cmd.NSID() == 2 {
						cqe.SetStatus(answers[i] | nvme.StatusDNR)
					}
				}
			})
		}
		_, opened := s.Namespace(t.Context(), 2)
		all, listed := s.Namespaces(t.Context())
		if len(all) != 1 {
			t.Errorf("%d namespaces, want the other one", len(all))
		}
		for _, err := range []error{opened, listed} {
			if err == nil {
				t.Fatal("no error")
			}
			for i, l := range r.links {
				named := strings.Contains(err.Error(), "path tcp://"+l.addr.String()+": Identify ")
				if want := i > 0; errors.Is(err, answers[i]) != want || named != want {
					t.Errorf("%v says of path %d, whose answer is %v: %v", err, i, answers[i], named)
				}
			}
		}
	})
}

// TestNamespacesOfEach: a namespace that is attached only to the controller of one path is found like any other.
func TestNamespacesOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.addNamespace(target.NamespaceConfig{})
		for i, l := range r.links {
			mine := uint32(2 - i) // the first path has the second namespace
			l.set(func(l *link) {
				l.alter = func(c *nvme.Command, data []byte) {
					switch {
					case c.Opcode() != nvme.OpIdentify:
					case c.CNS() == nvme.CNSActiveNSIDs:
						clear(data[copy(data, nvme.NSIDList{mine}.AppendTo(nil)):])
					case c.CNS() == nvme.CNSNamespace && c.NSID() != mine:
						clear(data) // inactive
					}
				}
			})
		}
		s, _ := r.connect()
		defer r.close(s)
		all, err := s.Namespaces(t.Context())
		if err != nil || len(all) != 2 || all[0].ID != 1 || all[1].ID != 2 {
			t.Fatalf("%d namespaces, %v", len(all), err)
		}
		for _, n := range all {
			mustRead(t, n, 0, 0)
		}
	})
}

// TestNamespacesOfThoseLeft: if the controller of a path is lost while it is asked for its namespaces, the other
// paths list them; if there is no other, the error says that it was lost.
func TestNamespacesOfThoseLeft(t *testing.T) {
	for links := 1; links <= 2; links++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, links)
			s, _ := r.connect()
			defer r.close(s)
			first := r.links[0]
			first.set(func(l *link) {
				l.answerAdmin = func(c *nvme.Command, _ *nvme.Completion) {
					if c.Opcode() == nvme.OpIdentify && c.CNS() == nvme.CNSActiveNSIDs {
						first.cut()
					}
				}
			})
			all, err := s.Namespaces(t.Context())
			if links == 1 && !errors.Is(err, host.ErrLost) || links == 2 && (err != nil || len(all) != 1) {
				t.Errorf("%d paths: %d namespaces, %v", links, len(all), err)
			}
		})
	}
}

// TestNamespacesUnlisted: a path whose controller refuses to list its namespaces doesn't hide those that the other
// path lists, and the error names that path. If no path lists them, nothing is known of the namespaces.
func TestNamespacesUnlisted(t *testing.T) {
	for refusing := 1; refusing <= 2; refusing++ {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2)
			s, _ := r.connect()
			defer r.close(s)
			for _, l := range r.links[:refusing] {
				l.set(func(l *link) {
					l.answerAdmin = func(c *nvme.Command, cqe *nvme.Completion) {
						if c.Opcode() == nvme.OpIdentify && c.CNS() == nvme.CNSActiveNSIDs {
							cqe.SetStatus(nvme.StatusInternalError | nvme.StatusDNR)
						}
					}
				})
			}
			all, err := s.Namespaces(t.Context())
			if refusing == 1 && len(all) != 1 || refusing == 2 && all != nil || !errors.Is(err, nvme.StatusInternalError) {
				t.Fatalf("%d of 2 refuse: %d namespaces, %v", refusing, len(all), err)
			}
			for i, l := range r.links {
				if named := strings.Contains(err.Error(), l.addr.String()); named != (i < refusing) {
					t.Errorf("%d of 2 refuse, it says: %v", refusing, err)
				}
			}
		})
	}
}

// TestNamespaceGoesAway: a namespace that disappears while all are being opened is left out, and the others are
// returned.
func TestNamespaceGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, _ := r.connect()
		defer r.close(s)
		for range 2 {
			r.addNamespace(target.NamespaceConfig{})
		}
		for _, l := range r.links {
			l.set(func(l *link) {
				l.answerAdmin = func(cmd *nvme.Command, cqe *nvme.Completion) {
					if cmd.Opcode() == nvme.OpIdentify && cmd.NSID() == 2 && cmd.CNS() == nvme.CNSDescriptors {
						cqe.SetStatus(nvme.StatusInvalidNamespace | nvme.StatusDNR)
					}
				}
			})
		}
		all, err := s.Namespaces(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 2 || all[0].ID != 1 || all[1].ID != 3 {
			t.Errorf("%d namespaces", len(all))
		}
	})
}
