package multipath

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestOpenMeanwhile: whenever a namespace is removed or replaced while it is being opened, no path is used that leads
// to another one, or nowhere.
func TestOpenMeanwhile(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		for link := range 2 {
			for at, more := 0, true; more && !t.Failed(); at++ {
				t.Run(fmt.Sprintf("replaced %v, after answer %d of path %d", replaced, at, link), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { more = openMeanwhile(t, replaced, link, at) })
				})
			}
		}
	}
}

// openMeanwhile lets it happen when the controller of a link has made an answer, which the host gets a second later. It
// returns false if there were fewer answers.
func openMeanwhile(t *testing.T, replaced bool, path, at int) (happened bool) {
	r := newRig(t, 2)
	before, after := [16]byte{1}, [16]byte{2}
	r.addNamespace(target.NamespaceConfig{NSID: 2, UUID: before})
	s, _ := r.connect()
	defer r.close(s)
	synctest.Wait()
	r.links[path].set(func(l *link) {
		l.answerAdmin = func(c *nvme.Command, _ *nvme.Completion) {
			if at--; at >= 0 || happened {
				return
			}
			happened = true
			if err := r.tgt.Subsystem(testNQN).RemoveNamespace(2); err != nil {
				t.Error(err)
			}
			if replaced {
				r.addNamespace(target.NamespaceConfig{NSID: 2, UUID: after})
			}
			time.Sleep(time.Second)
		}
	})
	n, err := s.Namespace(t.Context(), 2)
	time.Sleep(time.Second)
	if err != nil {
		return happened
	}
	_, err = n.ReadAt(t.Context(), make([]byte, n.BlockSize()), 0)
	there := !happened || replaced && n.Descriptors.UUID == after
	if there != (err == nil) {
		t.Errorf("what was opened as %v is there: %v; reading it: %v", identifiersOf(n.Namespace), there, err)
	}
	for _, p := range s.Paths() {
		for _, a := range p.Access {
			if used := a.NSID == 2 && a.Err == nil; used && !there {
				t.Errorf("path %s is used", p.Name())
			}
		}
	}
	return happened
}
