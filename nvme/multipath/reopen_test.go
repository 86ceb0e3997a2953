package multipath

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// identifyFails makes Identify Namespace end with a status, and records when it was called.
func (l *link) identifyFails(st nvme.Status, asked *[]time.Time) {
	l.set(func(l *link) {
		l.answerAdmin = func(c *nvme.Command, cqe *nvme.Completion) {
			if c.Opcode() == nvme.OpIdentify && c.NSID() == 1 {
				*asked = append(*asked, time.Now())
				cqe.SetStatus(st)
			}
		}
	})
}

// TestReopen: a path on which a namespace can't be opened for a passing reason retries after pauses that double,
// and logs why once; requests wait in the meantime.
func TestReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		told := 0
		r := newRig(t, 1)
		s, n := r.connect(func(c *Config) {
			c.ReconnectDelay, c.Log = time.Second, slog.New(slog.NewTextHandler(&log, nil))
			c.Changed = func(p PathStatus) {
				if p.State == Live && p.Access != nil && p.Access[0].Err == nil {
					told++
				}
			}
		})
		defer r.close(s)
		var asked []time.Time
		r.links[0].identifyFails(nvme.StatusInternalError, &asked)
		r.links[0].cut()
		r.links[0].restore(r.tgt)
		ended := make(chan error, 1)
		go func() {
			_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
			ended <- err
		}()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		var ms []int64
		for _, at := range asked {
			ms = append(ms, at.Sub(asked[0]).Milliseconds())
		}
		if want := []int64{0, 100, 300, 700, 1500, 2500, 3500}; !slices.Equal(ms, want) {
			t.Errorf("asked after %v ms, want %v", ms, want)
		}
		if a := s.Paths()[0].Access[0]; !errors.Is(a.Err, nvme.StatusInternalError) || s.Waiting() != 1 || told != 0 {
			t.Errorf("%+v, %d wait, told %d times", a, s.Waiting(), told)
		}
		r.links[0].set(func(l *link) { l.answerAdmin = nil })
		if err := <-ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if told != 1 || strings.Count(log.String(), "path not used") != 1 {
			t.Errorf("told %d times, log:\n%s", told, &log)
		}
	})
}

// TestReopenNotice: a namespace that isn't there is only looked for again after a notice.
func TestReopenNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		s, n := r.connect()
		defer r.close(s)
		var asked []time.Time
		r.links[0].identifyFails(nvme.StatusInvalidNamespace|nvme.StatusDNR, &asked)
		r.links[0].cut()
		r.links[0].restore(r.tgt)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(asked) != 1 {
			t.Errorf("asked %d times", len(asked))
		}
		if _, err := n.ReadAt(t.Context(), make([]byte, 4096), 0); !errors.Is(err, ErrNoPath) {
			t.Error(err)
		}
	})
}

// replace puts another volume in the place of the namespace.
func (r *rig) replace(uuid [16]byte, size int64) {
	r.t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: size})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { v.Close() })
	sub := r.tgt.Subsystem(testNQN)
	if err := sub.RemoveNamespace(1); err != nil {
		r.t.Fatal(err)
	}
	if _, err := sub.AddNamespace(target.NamespaceConfig{NSID: 1, UUID: uuid, Volume: v, ANAGroup: 1}); err != nil {
		r.t.Fatal(err)
	}
}

// TestOpenAgain: opening a namespace again shows its present state: it may have grown, or be a different one; what
// was opened before stays what it was, and takes no requests if another is in its place.
func TestOpenAgain(t *testing.T) {
	for name, change := range map[string]struct {
		uuid  [16]byte // zero: the same
		noted bool     // the paths have noticed
	}{
		"grown":        {},
		"grown, noted": {noted: true},
		"other":        {uuid: [16]byte{1}},
		"other, noted": {uuid: [16]byte{1}, noted: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2)
				s, old := r.connect()
				defer r.close(s)
				uuid := old.Descriptors.UUID
				if change.uuid != [16]byte{} {
					uuid = change.uuid
				}
				r.replace(uuid, 2*volumeSize)
				if change.noted {
					synctest.Wait()
				}
				n, err := s.Namespace(t.Context(), 1)
				if err != nil {
					t.Fatal(err)
				}
				if n.Size() != 2*volumeSize || n.Descriptors.UUID != uuid || old.Size() != volumeSize {
					t.Errorf("%d bytes of %x, before %d", n.Size(), n.Descriptors.UUID, old.Size())
				}
				synctest.Wait()
				if _, err := n.WriteAt(t.Context(), make([]byte, 4096), 2*volumeSize-4096); err != nil {
					t.Error(err)
				}
				_, err = old.ReadAt(t.Context(), make([]byte, 4096), 0)
				if same := change.uuid == [16]byte{}; (err == nil) != same || !same && !errors.Is(err, ErrNoPath) {
					t.Errorf("what was opened before: %v", err)
				}
				if a := s.Paths()[0].Access; len(a) != 1 || a[0].Err != nil {
					t.Errorf("access: %+v", a)
				}
			})
		})
	}
}

// TestPassing: only a namespace that may open without a notice from the controller is tried again.
func TestPassing(t *testing.T) {
	for err, want := range map[error]bool{
		nvme.StatusInternalError:    true,
		host.ErrANAUnstable:         true,
		nvme.StatusInvalidNamespace: false,
		host.ErrUnsupported:         false,
		host.ErrNamespace:           false,
	} {
		if got := passing(fmt.Errorf("namespace 1: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
