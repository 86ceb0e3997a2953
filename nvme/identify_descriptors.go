package nvme

import "fmt"

// NIDT is the type of a Namespace Identification Descriptor.
type NIDT uint8

// Descriptor types; their lengths are 8, 16, 16 and 1.
const (
	NIDTEUI64 NIDT = 1
	NIDTNGUID NIDT = 2
	NIDTUUID  NIDT = 3
	NIDTCSI   NIDT = 4
)

// nidHeader is the bytes before the identifier: type, length, two reserved.
const nidHeader = 4

// NSDescriptors is the Namespace Identification Descriptor list, CNS 03h. An identifier that is
// zero is one that the namespace doesn't have.
type NSDescriptors struct {
	EUI64 [8]byte
	NGUID [16]byte
	UUID  [16]byte
	CSI   CSI
	// HasCSI says that the list holds a CSI descriptor, which is mandatory if CC.CSS is 110b.
	HasCSI bool
}

// AppendTo appends the whole page of 4096 bytes.
func (d *NSDescriptors) AppendTo(b []byte) []byte {
	start := len(b)
	add := func(t NIDT, id []byte) {
		b = append(b, byte(t), byte(len(id)), 0, 0)
		b = append(b, id...)
	}
	if d.EUI64 != [8]byte{} {
		add(NIDTEUI64, d.EUI64[:])
	}
	if d.NGUID != [16]byte{} {
		add(NIDTNGUID, d.NGUID[:])
	}
	if d.UUID != [16]byte{} {
		add(NIDTUUID, d.UUID[:])
	}
	if d.HasCSI {
		add(NIDTCSI, []byte{byte(d.CSI)})
	}
	return append(b, make([]byte, PageSize-(len(b)-start))...)
}

// Parse reads a list. Descriptors of unknown type are skipped by their length.
func (d *NSDescriptors) Parse(b []byte) error {
	if len(b) < PageSize {
		return shortError("Namespace Identification Descriptors", len(b), PageSize)
	}
	*d = NSDescriptors{}
	for b = b[:PageSize]; len(b) >= nidHeader; {
		t, n := NIDT(b[0]), int(b[1])
		if t == 0 || n == 0 {
			return nil
		}
		if n > len(b)-nidHeader {
			return fmt.Errorf("nvme: Namespace Identification Descriptors: %w: descriptor type %d of %d bytes runs over the page", ErrMalformed, t, n)
		}
		if err := d.set(t, b[nidHeader:nidHeader+n]); err != nil {
			return err
		}
		b = b[nidHeader+n:]
	}
	return nil
}

func (d *NSDescriptors) set(t NIDT, id []byte) error {
	var field []byte
	switch t {
	case NIDTEUI64:
		field = d.EUI64[:]
	case NIDTNGUID:
		field = d.NGUID[:]
	case NIDTUUID:
		field = d.UUID[:]
	case NIDTCSI:
		d.CSI, d.HasCSI = CSI(id[0]), true
		field = id[:1]
	default:
		return nil
	}
	if len(id) != len(field) {
		return fmt.Errorf("nvme: Namespace Identification Descriptors: %w: type %d has length %d", ErrMalformed, t, len(id))
	}
	copy(field, id)
	return nil
}
