package linux

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/hostlib"
	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// TestStore runs nvmetgt itself in a machine whose power fails and whose disk breaks.
func TestStore(t *testing.T) {
	if testing.Short() {
		t.Skip("make power-cuts runs it")
	}
	version := anyKernel(t)
	if err := lab.Network(t.Context(), 1500); err != nil {
		t.Fatal(err)
	}
	t.Run(version+"/1500", func(t *testing.T) {
		t.Run("device-faults", func(t *testing.T) { testDeviceFaults(t, version) })
		t.Run("database", func(t *testing.T) { testDatabase(t, version, databaseCuts(t)) })
		t.Run("power-cuts", func(t *testing.T) { testPowerCuts(t, version, cuts(t)) })
	})
}

// cuts returns how often the power is cut.
func cuts(t *testing.T) int { return int(fuzzing.Number(t, cutsEnv, 3)) }

// databaseCuts returns how often it is cut under a database.
func databaseCuts(t *testing.T) int {
	return int(fuzzing.Number(t, databaseCutsEnv, uint64(max(cuts(t)/10, 1))))
}

// anyKernel returns the newest that this Debian has.
func anyKernel(t *testing.T) string {
	for _, version := range lab.Kernels {
		if images[version] != nil {
			return version
		}
	}
	t.Fatal("no kernel")
	return ""
}

// cutsEnv is how often TestStore cuts the power; `make power-cuts` does it 50 times.
const cutsEnv = "NVMEOF_POWER_CUTS"

// databaseCutsEnv is how often it does so under a database, instead of a tenth of that, alternating between the
// journals.
const databaseCutsEnv = "NVMEOF_DATABASE_CUTS"

// seedEnv repeats the random choices of a run; it can't repeat the timing.
const seedEnv = "NVMEOF_VERIFY_SEED"

// store is a machine in which nvmetgt runs, with storage that outlives it. Its power is cut as a machine's: QEMU is
// killed between two instructions of the processor. What was stored to the NVDIMM is there (as in a machine whose
// caches are flushed when the power fails; for the loss of cache contents see the simulated crashes of package
// persist), and what was in the disk's cache isn't, except for random sectors.
type store struct {
	*peer
	disk    *lab.Disk
	nvdimm  string
	version string
	rnd     *rand.Rand
	server  chan error // how nvmetgt ended
}

const (
	storeNumber = 6 // of the machine
	storeDisk   = 96 << 20
	storeNVDIMM = 96 << 20
	storeSetup  = "modprobe -a ext4 virtio_blk nfit nd_pmem && mkdir -p /dimm /disk"
)

// newStore makes the storage of a machine, with a file system on each device.
func newStore(t *testing.T, version string) *store {
	t.Helper()
	seed := fuzzing.Number(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d", seedEnv, seed)
	s := &store{version: version, rnd: rand.New(rand.NewPCG(seed, storeNumber))}
	s.nvdimm = filepath.Join(t.TempDir(), "nvdimm")
	if err := os.WriteFile(s.nvdimm, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.nvdimm, storeNVDIMM); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.disk, err = lab.NewDisk(t.TempDir(), storeDisk); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.disk.Close)
	return s
}

// boot starts the machine.
func (s *store) boot(t *testing.T) {
	t.Helper()
	m, err := lab.Boot(t.Context(), lab.Config{
		Name: "store", Number: storeNumber, Memory: 768, Image: images[s.version],
		Programs: []string{filepath.Join(binDir, "nvmetgt")}, Disk: s.disk, NVDIMM: s.nvdimm,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.peer = &peer{Machine: m}
	t.Cleanup(m.Close)
	s.must(t, storeSetup)
}

// format makes the file systems. A new NVDIMM has no memory for the kernel's page structures, without which there is no
// DAX: they are put in the machine's memory, as by ndctl create-namespace --mode=fsdax --map=mem. ext4 on it is to be
// mapped, so its blocks are pages.
func (s *store) format(t *testing.T) {
	t.Helper()
	s.must(t, `set -e; cd /sys/bus/nd
		echo namespace0.0 >drivers/nd_pmem/unbind
		cat /proc/sys/kernel/random/uuid >devices/pfn0.0/uuid
		echo ram >devices/pfn0.0/mode
		echo 2097152 >devices/pfn0.0/align
		echo namespace0.0 >devices/pfn0.0/namespace
		echo pfn0.0 >drivers/nd_pmem/bind`)
	s.must(t, "mkfs.ext4 -q -F -b 4096 /dev/pmem0 && mkfs.ext4 -q -F -b 4096 /dev/vda")
}

// storeVolume is one of nvmetgt's volumes.
type storeVolume struct {
	name, spec string
	size       int    // to create it with; 0 if it has its own
	block      int    // the unit that the storage below writes whole; the disk has sectors of 512 bytes
	mode       string // what nvmetgt must say about it
	volatile   bool
}

// storeVolumes are the volumes that are tested with power cuts, by namespace.
var storeVolumes = []storeVolume{
	{"pmem on DAX", "pmem:/dimm/volume", storeSize, 4096, "DAX on ext4, CLWB, out of place: a completed write is durable, each block whole or not at all", false},
	{"file on the disk", "/disk/file", storeSize, 512, "direct I/O", true},
	{"pmem on the disk", "pmem:/disk/mapped", storeSize, 4096, "mapped file on ext4, msync, out of place: durable after Flush or FUA, each block whole or not at all", true},
}

const (
	storeSize   = 16 << 20
	storeBlocks = 1024 // that are tested with power cuts
)

// mount mounts the file systems, which replays their journals.
func (s *store) mount(t *testing.T) {
	t.Helper()
	s.must(t, "mount -t ext4 -o dax=always /dev/pmem0 /dimm && mount -t ext4 /dev/vda /disk || { dmesg | tail >&2; exit 1; }")
}

// serve starts nvmetgt.
func (s *store) serve(t *testing.T, volumes ...storeVolume) {
	t.Helper()
	config := "log: {level: debug}\nlisten: ["
	for _, transport := range transports {
		config += transport + "://" + s.Addr.String() + ":4420, "
	}
	config += "]\nsubsystems:\n- nqn: " + testNQN + "\n  namespaces:\n"
	for _, v := range volumes {
		config += fmt.Sprintf("  - {volume: %q, size: %d, block_size: %d}\n", v.spec, v.size, v.block)
	}
	s.server = make(chan error, 1)
	go func(p *peer, ended chan<- error) {
		_, err := p.Run(context.WithoutCancel(t.Context()), "cat >/tmp/config <<'END'\n"+config+"END\nexec nvmetgt serve --config /tmp/config >/tmp/out 2>/tmp/log")
		ended <- err
	}(s.peer, s.server)
	s.must(t, "for i in $(seq 600); do grep -q ^ready /tmp/out && exit 0; sleep 0.1; done; cat /tmp/out /tmp/log >&2; exit 1")
}

// stop ends nvmetgt as an operator does.
func (s *store) stop(t *testing.T) {
	t.Helper()
	s.must(t, "kill $(pidof nvmetgt)")
	if err := <-s.server; err != nil {
		t.Errorf("nvmetgt after SIGTERM: %v", err)
	}
	s.must(t, "rm /tmp/out")
}

// cut cuts the power.
func (s *store) cut(t *testing.T) {
	for _, line := range s.Complaints() {
		t.Errorf("the kernel says: %s", line)
	}
	s.Close()
	lost, err := s.disk.PowerFail(s.rnd)
	if err != nil {
		t.Error(err)
	}
	t.Logf("the power failed with %d sectors in the disk's cache", lost)
}

// dial connects to nvmetgt in the machine.
func (s *store) dial(t *testing.T, transport string) *hostlib.Host {
	t.Helper()
	h, err := hostlib.Dial(t.Context(), transport, host.Config{
		Remote: netip.AddrPortFrom(s.Addr, 4420), SubNQN: testNQN, Queues: 1, KATO: time.Minute, IOTimeout: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Abandon() })
	return h
}
