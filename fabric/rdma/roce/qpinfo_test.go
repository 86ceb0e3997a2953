package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// qpInfo is what a queue pair is doing.
type qpInfo struct {
	QPN, DestQPN uint32
	State        verbs.QPState
	Remote       string        // address; empty before RTR
	MTU          int           // payload bytes of a full packet
	Outstanding  int           // send work requests not completed
	Receives     int           // receives posted
	InFlight     int           // bytes of requests not acknowledged
	ReadBytes    int           // bytes of READs not received
	Window       int           // bytes that the path to the peer admits
	RTT          time.Duration // smoothed, 0 before the first sample
	Retries      int           // of the oldest request
}

// qpInfos lists the queue pairs.
func (d *Device) qpInfos() []qpInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []qpInfo
	for _, q := range d.qps.all {
		list = append(list, q.info())
	}
	return list
}

func (q *qp) info() qpInfo {
	i := qpInfo{
		QPN: q.num, DestQPN: q.attr.DestQPN, State: q.attr.State, MTU: q.mtu,
		Outstanding: int(q.req.tail - q.req.head), Receives: int(q.resp.tail - q.resp.head),
		InFlight: q.req.inflight, ReadBytes: q.req.readBytes, Retries: q.req.retries,
	}
	if q.path != nil {
		i.Remote, i.Window, i.RTT = q.path.remote.String(), q.path.window.size, q.path.rtt
	}
	return i
}
