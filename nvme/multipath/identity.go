package multipath

import (
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
	id := identifiers{n.Descriptors.UUID, n.Descriptors.NGUID, n.Descriptors.EUI64}
	if id.nguid == [16]byte{} {
		id.nguid = n.Identity.NGUID
	}
	if id.eui64 == [8]byte{} {
		id.eui64 = n.Identity.EUI64
	}
	return id
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
