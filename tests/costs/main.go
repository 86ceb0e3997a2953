// Costs measures what I/O costs on loopback: how fast it is over RDMA compared with NVMe/TCP and bare sockets;
// processor time, system calls and copied bytes per I/O on either side; whether the cost stays the same with more
// connections, queues and larger volumes; what an idle connection costs; how much throughput scrapes of the figures
// take away; and how fast it is over a link with short packets. It starts nvmetgt and nvmeinit, and reads their figures
// for Prometheus.
//
//	go run ./tests/costs [-bin DIR] [-time 1s] [-rounds 5] [-volume mem:64MiB] [speed] [link] [io] [growth] [size] [idle] [scrape]
//
// Variants of one table alternate in random order; the results shown are medians.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

// plan says how everything is measured.
type plan struct {
	bin    string // where nvmetgt and nvmeinit are
	dir    string // for files
	time   time.Duration
	rounds int
	volume string // for speed and io
}

var parts = map[string]func(*plan) error{
	"speed":  speed,
	"link":   link,
	"io":     costPerIO,
	"growth": growth,
	"size":   sizes,
	"idle":   idle,
	"scrape": scrapes,
}

// defaultVolume is as large as the memory from which bare sockets take their data.
const defaultVolume = "mem:64MiB"

var order = []string{"speed", "link", "io", "growth", "size", "idle", "scrape"}

func main() {
	runtime.LockOSThread() // this thread starts the programs, which end with it, however this one ends
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "costs:", err)
		os.Exit(1)
	}
}

func run() error {
	p := &plan{}
	flag.StringVar(&p.bin, "bin", "", "directory of nvmetgt and nvmeinit (default: built for this run)")
	flag.DurationVar(&p.time, "time", time.Second, "how long each measurement takes")
	flag.IntVar(&p.rounds, "rounds", 5, "how often each is repeated")
	flag.StringVar(&p.volume, "volume", defaultVolume, "what speed and io read and write; bare sockets are beside the default")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "costs [flags] [%s]\n", strings.Join(order, "] ["))
		flag.PrintDefaults()
	}
	flag.Parse()
	chosen := flag.Args()
	if len(chosen) == 0 {
		chosen = order
	}
	for _, name := range chosen {
		if !slices.Contains(order, name) {
			return fmt.Errorf("%q is none of %s", name, strings.Join(order, ", "))
		}
	}
	if p.rounds < 1 || p.time < 100*time.Millisecond {
		return fmt.Errorf("-rounds %d, -time %v: want at least 1 and 100ms", p.rounds, p.time)
	}
	var err error
	if p.dir, err = os.MkdirTemp("", "nvmeof-costs-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	if p.bin == "" {
		p.bin = p.dir
		cmd := exec.Command("go", "build", "-trimpath", "-o", p.bin+string(filepath.Separator), "./cmd/nvmetgt", "./cmd/nvmeinit")
		if _, err := process.Output(cmd); err != nil {
			return err
		}
	}
	for _, name := range chosen {
		if err := parts[name](p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
