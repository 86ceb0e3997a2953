package control

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Codes of the specification.
const (
	overRDMA, overTCP = 1, 3
	inaccessible      = 3
	sha384, ffdhe3072 = 2, 2
)

// TestStatusOf: a status has the keys that docs/control.md lists, with the values of the target.
func TestStatusOf(t *testing.T) {
	since := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	counts := func(n uint64) (s target.IOStats) {
		s.Read.Ops, s.Write.Ops, s.Other.Ops = n, n+1, n+2
		s.Read.Bytes, s.Write.Bytes = 4096*n, 512*n
		s.Errors[0], s.Errors[2] = n, 5
		return s
	}
	snap := target.Snapshot{
		Connections: 3, Draining: true,
		ANA: []target.ANAStats{{Transport: overRDMA, Addr: netip.MustParseAddrPort("192.0.2.1:4420"), Group: 2, State: inaccessible}},
		Subsystems: []target.SubsystemStats{{
			NQN: "nqn.2026-11.org.example:a",
			Namespaces: []target.NamespaceStats{{
				NSID: 7, Kind: "file", Path: "disk.img", Size: 1 << 30, ReadOnly: true, MediaErrors: 4, ANAGroup: 2, IO: counts(10),
			}},
			Controllers: []target.ControllerStats{{
				CNTLID: 9, HostNQN: "nqn.2026-11.org.example:h", Transport: overTCP,
				Remote: netip.MustParseAddrPort("192.0.2.2:5000"), Since: since, KeepAlive: 1500 * time.Millisecond,
				Queues: []target.QueueStats{{QID: 1, Depth: 128, InFlight: 6, IO: counts(20)}},
				Auth:   &target.AuthStats{Hash: sha384, DHGroup: ffdhe3072, Bidirectional: true, Since: since},
			}, {CNTLID: 10, Transport: overRDMA, Remote: netip.MustParseAddrPort("192.0.2.2:5001"), Queues: []target.QueueStats{{}}}},
		}, {NQN: "nqn.2014-08.org.nvmexpress.discovery"}},
	}
	st := StatusOf(&snap)
	st.Listen = []string{"rdma://192.0.2.1:4420"}
	const want = `{
	"listen": ["rdma://192.0.2.1:4420"], "connections": 3, "draining": true,
	"subsystems": [{
		"nqn": "nqn.2026-11.org.example:a",
		"namespaces": [{
			"nsid": 7, "kind": "file", "path": "disk.img", "size": 1073741824, "read_only": true, "media_errors": 4, "ana_group": 2,
			"io": {"reads": 10, "writes": 11, "others": 12, "errors": 15, "read_bytes": 40960, "written_bytes": 5120}
		}],
		"controllers": [{
			"cntlid": 9, "host_nqn": "nqn.2026-11.org.example:h", "transport": "tcp", "remote": "192.0.2.2:5000",
			"since": "2026-11-28T12:00:00Z", "keep_alive_s": 1.5,
			"queues": [{
				"qid": 1, "depth": 128, "in_flight": 6,
				"io": {"reads": 20, "writes": 21, "others": 22, "errors": 25, "read_bytes": 81920, "written_bytes": 10240}
			}],
			"authentication": {"hash": "sha384", "dh_group": "ffdhe3072", "bidirectional": true, "since": "2026-11-28T12:00:00Z"}
		}, {
			"cntlid": 10, "host_nqn": "", "transport": "rdma", "remote": "192.0.2.2:5001", "since": "0001-01-01T00:00:00Z", "keep_alive_s": 0,
			"queues": [{
				"qid": 0, "depth": 0, "in_flight": 0,
				"io": {"reads": 0, "writes": 0, "others": 0, "errors": 0, "read_bytes": 0, "written_bytes": 0}
			}]
		}]
	}, {"nqn": "nqn.2014-08.org.nvmexpress.discovery", "namespaces": [], "controllers": []}],
	"ana": [{"listen": "rdma://192.0.2.1:4420", "group": 2, "state": "inaccessible"}]
}`
	got, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(want)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, compact.Bytes()) {
		t.Errorf("the status is\n%s\nwant\n%s", got, compact.Bytes())
	}
}
