package nvme

import "unsafe"

// IdentifyNamespaceIndependent is the I/O Command Set Independent Identify Namespace data
// structure, CNS 08h.
type IdentifyNamespaceIndependent struct {
	NSFEAT   NSFEAT
	NMIC     NMIC
	RESCAP   RESCAP
	FPI      uint8
	ANAGRPID uint32
	NSATTR   NSATTR
	_        [1]byte
	NVMSETID uint16
	ENDGID   uint16
	NSTAT    NSTAT
	KPIOS    uint8  // key per I/O: bit 0 supported, bit 1 enabled
	MAXKT    uint16 // greatest key tag
	_        [2]byte
	RGRPID   uint32 // reachability group
	_        [4072]byte
}

var _ [PageSize]byte = [unsafe.Sizeof(IdentifyNamespaceIndependent{})]byte{}

// AppendTo appends the page.
func (p *IdentifyNamespaceIndependent) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *IdentifyNamespaceIndependent) Parse(b []byte) error {
	return parsePage(b, p, PageSize, "I/O Command Set Independent Identify Namespace")
}

// NSTAT is Namespace Status.
type NSTAT uint8

// NSTATReady says that the namespace processes I/O commands.
const NSTATReady NSTAT = 1 << 0
