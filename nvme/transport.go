package nvme

// TransportType is TRTYPE of a discovery log entry.
type TransportType uint8

// Transports.
const (
	TransportRDMA TransportType = 1
	TransportFC   TransportType = 2
	TransportTCP  TransportType = 3
	TransportLoop TransportType = 254
)

// String returns the name that nvme-cli uses: "rdma", "tcp" and so on.
func (t TransportType) String() string {
	switch t {
	case TransportRDMA:
		return "rdma"
	case TransportFC:
		return "fc"
	case TransportTCP:
		return "tcp"
	case TransportLoop:
		return "loop"
	}
	return "unknown"
}
