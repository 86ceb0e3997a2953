package nvme

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// HostID is the 128-bit Host Identifier of Connect data and of feature 81h. Linux and
// nvme-cli write the 16 bytes of a UUID in its textual order, and so does String.
type HostID [16]byte

// NewHostID makes a random (version 4) host identifier.
func NewHostID() HostID { return HostID(uuid.New()) }

// ParseHostID reads the textual form of a UUID.
func ParseHostID(s string) (HostID, error) {
	u, err := uuid.Parse(s)
	if err != nil {
		return HostID{}, fmt.Errorf("nvme: host ID %q: %w: give a UUID such as 6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a", s, err)
	}
	return HostID(u), nil
}

// IsZero reports whether the identifier is zero, which a host must not use (NVMe base,
// "Host Identifier").
func (h HostID) IsZero() bool { return h == HostID{} }

func (h HostID) String() string { return uuid.UUID(h).String() }

// NQN is the host NQN, of the UUID form, that belongs to h.
func (h HostID) NQN() string { return UUIDPrefix + h.String() }

// HostIDOf returns the UUID in an NQN of the UUID form. Hosts use it as their host identifier, so
// that a name always goes with the same identifier, as Linux targets require.
func HostIDOf(nqn string) (HostID, bool) {
	id, ok := strings.CutPrefix(nqn, UUIDPrefix)
	if !ok {
		return HostID{}, false
	}
	u, err := uuid.Parse(id)
	return HostID(u), err == nil
}
