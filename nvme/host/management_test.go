package host

import (
	"errors"
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
	if err := c.AttachNamespace(t.Context(), 1, make([]uint16, nvme.MaxControllerList+1)...); !errors.Is(err, ErrRange) {
		t.Error(err)
	}
}
