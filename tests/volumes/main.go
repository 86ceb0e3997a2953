// Volumes measures the file volume by itself, on each path to the data and at several depths, compared with fio with
// the same engine on the same file, alternately in one run: what matters is the ratio of the two. fio is Debian's (`apt
// install fio`).
//
//	go run ./tests/volumes -file /var/tmp/bench.img -rw randread,randwrite -bs 4k,128k
//
// With -through it measures the volume behind nvmetgt, compared with the same volume locally and the network alone.
//
//	go run ./tests/volumes -through rdma,tcp -depths 1,32
//
// It fails if a ratio is below 0.9.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// threadsRuntime is how long fio runs at least if it has several threads, so that all of them have begun.
const threadsRuntime = 1500 * time.Millisecond

// wanted is the smallest ratio that is good enough.
const wanted = 0.9

// plan is what is measured.
type plan struct {
	file    string
	size    int64
	runtime time.Duration
	rounds  int
	paths   []path
	rws     []string
	sizes   []int
	depths  []int
	through []string // transports
	bin     string
	look    time.Duration // --busy-poll of both programs; negative means their default
}

// path is a way to the data, and fio's name for it. fio's psync has one request per job, so there it gets as many jobs
// as the depth.
type path struct {
	name   string
	mode   blockdev.IOMode
	engine string
	direct bool
}

var allPaths = []path{
	{"buffered", blockdev.IOBuffered, "psync", false},
	{"direct", blockdev.IODirect, "libaio", true},
	{"uring", blockdev.IOUring, "io_uring", true},
}

func main() {
	standstill.Spare() // as nvmetgt does
	p, err := parse()
	if err == nil {
		err = run(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes:", err)
		os.Exit(1)
	}
}

func parse() (p *plan, err error) {
	p = &plan{}
	var size, paths, sizes, depths, rws, through string
	flag.StringVar(&p.file, "file", "volumes-bench.img", "file to measure on; created where it doesn't exist, and overwritten")
	flag.StringVar(&size, "size", "512MiB", "its size")
	flag.DurationVar(&p.runtime, "runtime", time.Second, "how long each measurement runs")
	flag.IntVar(&p.rounds, "rounds", 3, "how often each is repeated")
	flag.StringVar(&paths, "paths", "buffered,direct,uring", "paths to the data")
	flag.StringVar(&rws, "rw", "randread,randwrite", "fio's patterns: randread, randwrite")
	flag.StringVar(&sizes, "bs", "4k,128k", "block sizes")
	flag.StringVar(&depths, "depths", "1,4,16,32,128", "requests at a time")
	flag.StringVar(&through, "through", "", "transports, rdma or tcp, of a target to measure through, instead of beside fio")
	flag.StringVar(&p.bin, "bin", "bin", "with -through, the directory of nvmetgt and nvmeinit")
	flag.DurationVar(&p.look, "busy-poll", -1,
		"with -through, how long RDMA looks for packets before sleeping (0: the network asleep; default: the programs' own)")
	flag.Parse()
	if p.size, err = blockdev.ParseSize(size); err != nil {
		return nil, err
	}
	for s := range strings.SplitSeq(paths, ",") {
		i := slices.IndexFunc(allPaths, func(p path) bool { return p.name == s })
		if i < 0 {
			return nil, fmt.Errorf("-paths: no path is called %q", s)
		}
		p.paths = append(p.paths, allPaths[i])
	}
	if through != "" {
		p.through = strings.Split(through, ",")
	}
	for _, s := range p.through {
		if s != "rdma" && s != "tcp" {
			return nil, fmt.Errorf("-through: %q is neither rdma nor tcp", s)
		}
	}
	p.rws = strings.Split(rws, ",")
	for _, rw := range p.rws {
		if rw != "randread" && rw != "randwrite" {
			return nil, fmt.Errorf("-rw: %q is neither randread nor randwrite", rw)
		}
	}
	for s := range strings.SplitSeq(sizes, ",") {
		n, err := blockdev.ParseSize(s)
		if err != nil || n < 4096 || n%4096 != 0 {
			return nil, fmt.Errorf("-bs: %q is no multiple of 4096", s)
		}
		p.sizes = append(p.sizes, int(n))
	}
	for s := range strings.SplitSeq(depths, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-depths: %q is no number of requests", s)
		}
		p.depths = append(p.depths, n)
	}
	return p, nil
}

func run(p *plan) error {
	if err := fill(p); err != nil {
		return err
	}
	if most := int64(slices.Max(p.sizes)); most > p.size {
		return fmt.Errorf("-bs: %s has %s, and a block %s", p.file, blockdev.FormatSize(p.size), blockdev.FormatSize(most))
	}
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	measure := p.besideFIO
	if len(p.through) > 0 {
		measure = p.throughTarget
	}
	score, err := measure(t)
	if err != nil {
		return err
	}
	t.Render()
	fmt.Printf("medians of %d rounds, ratios of each round\n", p.rounds)
	if score.below > 0 {
		return fmt.Errorf("%d of %d are below %.2f", score.below, score.all, wanted)
	}
	return nil
}

// each calls f with everything that is to be measured.
func (p *plan) each(f func(work) error) error {
	for _, way := range p.paths {
		fmt.Fprintln(os.Stderr, way.name)
		for _, rw := range p.rws {
			for _, bs := range p.sizes {
				for _, depth := range p.depths {
					w := work{file: p.file, size: p.size, path: way, write: rw == "randwrite", bs: bs, depth: depth, runtime: p.runtime}
					if len(p.through) == 0 && w.threads() {
						w.runtime = max(p.runtime, threadsRuntime)
					}
					if err := f(w); err != nil {
						return fmt.Errorf("%s, %s, %d bytes, depth %d: %w", way.name, rw, bs, depth, err)
					}
				}
			}
		}
	}
	return nil
}

// row returns the beginning of a row of the table.
func (w *work) row() table.Row {
	return table.Row{w.path.name, w.pattern(), blockdev.FormatSize(int64(w.bs)), w.depth}
}

// score counts ratios.
type score struct{ all, below int }

// judge counts a ratio, and returns its columns.
func (s *score) judge(ratio float64) []any {
	s.all++
	note := ""
	if ratio < wanted {
		s.below++
		note = "below"
	}
	return []any{fmt.Sprintf("%.2f", ratio), note}
}

func median(a []float64) float64 {
	slices.Sort(a)
	return a[len(a)/2]
}
