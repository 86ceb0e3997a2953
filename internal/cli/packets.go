package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
)

// Packets holds the options about packets that both programs have.
type Packets struct {
	DSCP        int
	Priority    int
	PlainUDP    bool
	NoLocalICRC bool
	LocalMemory bool
	Engines     int
	BusyPoll    time.Duration // 0 means never
	Fault       Fault
}

// Bounds of Packets, and a default.
const (
	MaxDSCP     = 63
	MaxPriority = 6 // what a user other than root may set
	MaxBusyPoll = busypoll.Max
	MaxEngines  = 8

	DefaultBusyPoll = busypoll.Default
)

// AddFlags adds the flags that set p. faults says where help lists the faults.
func (p *Packets) AddFlags(fl *pflag.FlagSet, faults string) {
	fl.IntVar(&p.DSCP, "dscp", 0, "RDMA: `DSCP` of the packets, 0 to 63, which selects their class in switches")
	fl.IntVar(&p.Priority, "priority", 0, "RDMA: `priority` of the packets, 1 to 6, which a VLAN interface maps to a class (default derived from the DSCP)")
	fl.BoolVar(&p.PlainUDP, "plain-udp", false, "RDMA: one datagram per system call, without segmentation offload and coalescing")
	fl.BoolVar(&p.NoLocalICRC, "no-local-icrc", false, "RDMA: no ICRC in packets to and from programs of this kind on the same host that have this option too")
	fl.BoolVar(&p.LocalMemory, "local-memory", false, "RDMA: exchange packets with programs of this kind, of the same user on the same host, that have this option too through shared memory instead of the socket")
	fl.IntVar(&p.Engines, "engines", 1, "RDMA: `number` of RNICs at each address, 1 to 8, over which connections are spread: each employs one processor at most")
	fl.DurationVar(&p.BusyPoll, "busy-poll", DefaultBusyPoll, "longest `time` to poll for packets before sleeping; 0: never")
	fl.Var(&p.Fault, "fault", "RDMA: `FAULTS` to inject, as loss=1%,delay=200us±50us; "+faults)
}

// Validate checks the flags' values.
func (p *Packets) Validate() error {
	switch {
	case p.DSCP < 0 || p.DSCP > MaxDSCP:
		return Usage("--dscp %d: want 0 to %d", p.DSCP, MaxDSCP)
	case p.Priority < 0 || p.Priority > MaxPriority:
		return Usage("--priority %d: want 0 (as the DSCP says) to %d", p.Priority, MaxPriority)
	case p.BusyPoll < 0 || p.BusyPoll > MaxBusyPoll:
		return Usage("--busy-poll %v: want 0, which is off, to %v", p.BusyPoll, MaxBusyPoll)
	case p.Engines < 1 || p.Engines > MaxEngines:
		return Usage("--engines %d: want 1 to %d", p.Engines, MaxEngines)
	case p.Engines > 1 && p.LocalMemory:
		return Usage("--engines %d and --local-memory: want one of them: programs share memory with one RNIC at an address", p.Engines)
	}
	return nil
}
