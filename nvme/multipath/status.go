package multipath

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// State is the state of a path.
type State uint8

// States of a path.
const (
	Connecting   State = iota // it has not been live yet
	Live                      // its controller is connected
	Reconnecting              // it was live, and is being reconnected
	GivenUp                   // it is no longer tried
)

func (s State) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Live:
		return "live"
	case Reconnecting:
		return "reconnecting"
	case GivenUp:
		return "given up"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// PathStatus is the state and history of a path at one moment.
type PathStatus struct {
	Transport nvme.TransportType
	Remote    netip.AddrPort
	Source    netip.Addr     // the local address that its configuration names; zero if the transport chooses
	Local     netip.AddrPort // while live
	CNTLID    uint16         // while live
	State     State
	Since     time.Time // when it entered the state
	Err       error     // why it isn't live
	Access    []Access  // of each namespace that was opened, while live

	UnderWay int64 // requests sent by it that have not ended
	Counters *PathCounters
}

// Access describes how a live path leads to a namespace.
type Access struct {
	NSID  uint32
	State nvme.ANAState // 0: not known yet
	Err   error         // why the path doesn't lead there
}

// Name is the path's address, such as tcp://192.0.2.1:4420, and if its configuration names a local address, that too, as
// in tcp://192.0.2.1:4420 from 192.0.2.9.
func (s *PathStatus) Name() string {
	name := fmt.Sprintf("%s://%s", s.Transport, s.Remote)
	if s.Source.IsValid() {
		name += " from " + s.Source.String()
	}
	return name
}

// pathName is the Name of the path that a controller is connected by.
func pathName(c *host.Controller) string {
	cfg := c.Config()
	s := PathStatus{Transport: cfg.Transport.Type(), Remote: cfg.Remote, Source: cfg.Local}
	return s.Name()
}

// Why returns Err as text, without the name of the path.
func (s *PathStatus) Why() string {
	var lost *host.LostError
	var connect *host.ConnectError
	given := ""
	if errors.Is(s.Err, ErrGivenUp) {
		given = ErrGivenUp.Error() + ": "
	}
	switch {
	case s.Err == nil:
		return ""
	case errors.As(s.Err, &lost) && lost.Cause != nil:
		return fmt.Sprintf("%s%v: %v", given, host.ErrLost, lost.Cause)
	case errors.As(s.Err, &connect):
		why := strings.TrimPrefix(connect.Err.Error(), "nvme: ")
		return fmt.Sprintf("%s%s: %s", given, connect.Stage, strings.TrimPrefix(why, connect.Stage+": "))
	}
	return strings.TrimPrefix(s.Err.Error(), "nvme: ")
}

// access returns the entry for a namespace, or nil.
func (s *PathStatus) access(nsid uint32) *Access {
	for i := range s.Access {
		if s.Access[i].NSID == nsid {
			return &s.Access[i]
		}
	}
	return nil
}

// explain says why the path doesn't take requests for a namespace.
func (s *PathStatus) explain(nsid uint32) string {
	text := s.Name() + " is " + s.State.String()
	switch a := s.access(nsid); {
	case s.State != Live && s.Err != nil:
		text += ": " + s.Why()
	case a != nil && a.Err != nil:
		text += ", but " + strings.TrimPrefix(a.Err.Error(), "nvme: ")
	case a != nil && (a.State == nvme.ANAOptimized || a.State == nvme.ANANonOptimized):
		text += " and " + a.State.String()
	case a != nil && a.State != 0:
		text += ", but " + a.State.String()
	}
	return text
}
