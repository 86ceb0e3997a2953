package target_test

import (
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// A target with one subsystem over a volume in memory. A transport's listener would now make
// a queue for each of its connections.
func ExampleNew() {
	volume, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer volume.Close()
	t, err := target.New(target.Config{
		Subsystems: []target.SubsystemConfig{{
			NQN:          "nqn.2024-01.com.example:disk1",
			AllowAnyHost: true,
			Namespaces:   []target.NamespaceConfig{{Volume: volume}},
		}},
		Ports: []target.Port{{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("127.0.0.1:4420")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range t.Snapshot().Subsystems {
		fmt.Println(s.NQN, len(s.Namespaces))
	}
	// Output:
	// nqn.2024-01.com.example:disk1 1
	// nqn.2014-08.org.nvmexpress.discovery 0
}
