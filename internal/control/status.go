package control

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Status is what a target is doing at one moment: GET /v1/status.
type Status struct {
	Listen      []string    `json:"listen"`
	Connections int         `json:"connections"` // queues of all hosts, including discovery
	Draining    bool        `json:"draining"`    // hosts are refused
	Subsystems  []Subsystem `json:"subsystems"`
	ANA         []ANA       `json:"ana"` // the groups that namespaces are in, for each endpoint
}

// ANA is the state of an ANA group at an endpoint.
type ANA struct {
	Listen string `json:"listen"`
	Group  uint32 `json:"group"`
	State  string `json:"state"` // optimized, non-optimized, inaccessible, persistent-loss, change
}

// Subsystem is a subsystem, identified by its NQN.
type Subsystem struct {
	NQN         string       `json:"nqn"`
	Namespaces  []Namespace  `json:"namespaces"`
	Controllers []Controller `json:"controllers"`
}

// Namespace is a namespace, identified by its NSID. Counters start when it was added.
type Namespace struct {
	NSID        uint32 `json:"nsid"`
	Kind        string `json:"kind"`
	Path        string `json:"path,omitempty"`
	Size        uint64 `json:"size"` // bytes
	ReadOnly    bool   `json:"read_only"`
	MediaErrors uint64 `json:"media_errors"`
	ANAGroup    uint32 `json:"ana_group"`
	IO          IO     `json:"io"`
}

// Controller is a host's association with a subsystem, identified by its CNTLID.
type Controller struct {
	CNTLID    uint16    `json:"cntlid"`
	HostNQN   string    `json:"host_nqn"`
	Transport string    `json:"transport"`
	Remote    string    `json:"remote"`
	Since     time.Time `json:"since"`
	KeepAlive float64   `json:"keep_alive_s"` // 0: none
	Queues    []Queue   `json:"queues"`
	// Authentication is the host's last authentication; absent if there was none.
	Authentication *Authentication `json:"authentication,omitempty"`
}

// Authentication is an authentication by DH-HMAC-CHAP.
type Authentication struct {
	Hash          string    `json:"hash"`
	DHGroup       string    `json:"dh_group"`
	Bidirectional bool      `json:"bidirectional"` // the controller authenticated itself, too
	Since         time.Time `json:"since"`
}

// Queue is a queue of a controller; the admin queue comes first.
type Queue struct {
	QID      uint16 `json:"qid"`
	Depth    int    `json:"depth"`
	InFlight int    `json:"in_flight"`
	IO       IO     `json:"io"`
}

// IO counts commands and bytes.
type IO struct {
	Reads        uint64 `json:"reads"`
	Writes       uint64 `json:"writes"`
	Others       uint64 `json:"others"`
	Errors       uint64 `json:"errors"`
	ReadBytes    uint64 `json:"read_bytes"`
	WrittenBytes uint64 `json:"written_bytes"`
}

// StatusOf converts a snapshot of a target.
func StatusOf(snap *target.Snapshot) Status {
	st := Status{Connections: snap.Connections, Draining: snap.Draining, Subsystems: []Subsystem{}, ANA: []ANA{}}
	for i := range snap.ANA {
		a := &snap.ANA[i]
		name, _ := config.ANAState(a.State).MarshalText() // the engine knows no others
		st.ANA = append(st.ANA, ANA{
			Listen: cli.Endpoint{Transport: a.Transport, Addr: a.Addr}.String(), Group: a.Group, State: string(name),
		})
	}
	for i := range snap.Subsystems {
		st.Subsystems = append(st.Subsystems, subsystemOf(&snap.Subsystems[i]))
	}
	return st
}

func subsystemOf(s *target.SubsystemStats) Subsystem {
	out := Subsystem{NQN: s.NQN, Namespaces: []Namespace{}, Controllers: []Controller{}}
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		out.Namespaces = append(out.Namespaces, Namespace{
			NSID: n.NSID, Kind: n.Kind, Path: n.Path, Size: n.Size, ReadOnly: n.ReadOnly,
			MediaErrors: n.MediaErrors, ANAGroup: n.ANAGroup, IO: ioOf(&n.IO),
		})
	}
	for i := range s.Controllers {
		c := &s.Controllers[i]
		ctrl := Controller{
			CNTLID: c.CNTLID, HostNQN: c.HostNQN, Transport: c.Transport.String(), Remote: c.Remote.String(),
			Since: c.Since, KeepAlive: c.KeepAlive.Seconds(),
		}
		if a := c.Auth; a != nil {
			ctrl.Authentication = &Authentication{Hash: a.Hash.String(), DHGroup: a.DHGroup.String(), Bidirectional: a.Bidirectional, Since: a.Since}
		}
		for j := range c.Queues {
			q := &c.Queues[j]
			ctrl.Queues = append(ctrl.Queues, Queue{QID: q.QID, Depth: q.Depth, InFlight: q.InFlight, IO: ioOf(&q.IO)})
		}
		out.Controllers = append(out.Controllers, ctrl)
	}
	return out
}

func ioOf(s *target.IOStats) IO {
	out := IO{
		Reads: s.Read.Ops, Writes: s.Write.Ops, Others: s.Other.Ops,
		ReadBytes: s.Read.Bytes, WrittenBytes: s.Write.Bytes,
	}
	for _, n := range s.Errors {
		out.Errors += n
	}
	return out
}
