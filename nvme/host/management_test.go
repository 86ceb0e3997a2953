package host

import (
	"errors"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestManagementUnsupported: a command that the controller doesn't support isn't sent.
func TestManagementUnsupported(t *testing.T) {
	f := newFakeTarget()
	f.identity.OACS &^= nvme.OACSNSManagement | nvme.OACSFormat
	f.identity.SANICAP = nvme.SANICAPUnmodified // which is no action
	f.identity.ONCS &^= nvme.ONCSReservations
	c, n := connectNamespace(t, f)
	defer closeController(t, c)
	_, create := c.CreateNamespace(t.Context(), &nvme.NamespaceSpec{NSZE: 1, NCAP: 1})
	for name, err := range map[string]error{
		"create": create, "delete": c.DeleteNamespace(t.Context(), 1),
		"format": c.Format(t.Context(), 1, 0, nvme.EraseNone), "sanitize": c.Sanitize(t.Context(), nvme.SanitizeBlockErase, 0, 1, 0),
		"attach": c.AttachNamespace(t.Context(), 1), "detach": c.DetachNamespace(t.Context(), 1, 7),
		"register": n.ReservationRegister(t.Context(), nvme.ResvRegister, nvme.ResvKeys{Other: 1}, false, nvme.CPTPLKeep),
		"acquire":  n.ReservationAcquire(t.Context(), nvme.ResvAcquire, nvme.ResvWriteExclusive, nvme.ResvKeys{Current: 1}),
		"release":  n.ReservationRelease(t.Context(), nvme.ResvRelease, nvme.ResvWriteExclusive, 1),
	} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTooManyControllers: a list of controllers that doesn't fit in one page isn't truncated.
func TestTooManyControllers(t *testing.T) {
	f := newFakeTarget()
	f.identity.OACS |= nvme.OACSNSManagement
	c := connect(t, f)
	defer closeController(t, c)
	many := make([]uint16, nvme.MaxControllerList+1)
	for i := range many {
		many[i] = uint16(i)
	}
	if err := c.AttachNamespace(t.Context(), 1, many...); !errors.Is(err, ErrRange) {
		t.Error(err)
	}
}

// TestControllerListAscends: the controllers of Namespace Attachment are sent in ascending order, each once, as NVMe base
// 2.1, section 4.6.1, demands of every Controller List.
func TestControllerListAscends(t *testing.T) {
	f := newFakeTarget()
	f.identity.OACS |= nvme.OACSNSManagement
	var sent []nvme.ControllerList
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpNSAttachment {
			return usual
		}
		l, err := nvme.ParseControllerList(r.Data)
		if err != nil {
			t.Error(err)
		}
		sent = append(sent, l)
		return answered
	})
	c := connect(t, f)
	defer closeController(t, c)
	given := []uint16{9, 3, 9, 7}
	if err := errors.Join(c.AttachNamespace(t.Context(), 1, given...), c.DetachNamespace(t.Context(), 1, given...),
		c.AttachNamespace(t.Context(), 1)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []nvme.ControllerList{{3, 7, 9}, {3, 7, 9}, {c.CNTLID()}} {
		if !slices.Equal(sent[i], want) {
			t.Errorf("list %d is %d, want %d", i, sent[i], want)
		}
	}
	if !slices.Equal(given, []uint16{9, 3, 9, 7}) {
		t.Errorf("the caller's list has become %d", given)
	}
}
