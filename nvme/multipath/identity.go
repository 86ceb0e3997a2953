package multipath

import (
	"cmp"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// identifiers holds what shows that several controllers have the same namespace.
type identifiers struct {
	uuid, nguid [16]byte
	eui64       [8]byte
}

// identifiersOf takes the identifiers from the descriptors, and those missing there from Identify Namespace.
func identifiersOf(n *host.Namespace) identifiers {
	d, id := &n.Descriptors, &n.Identity
	return identifiers{d.UUID, cmp.Or(d.NGUID, id.NGUID), cmp.Or(d.EUI64, id.EUI64)}
}

func (id identifiers) String() string {
	switch {
	case id.uuid != [16]byte{}:
		return "UUID " + uuid.UUID(id.uuid).String()
	case id.nguid != [16]byte{}:
		return "NGUID " + hex.EncodeToString(id.nguid[:])
	case id.eui64 != [8]byte{}:
		return fmt.Sprintf("EUI64 %x", id.eui64)
	}
	return "one without identifier"
}
