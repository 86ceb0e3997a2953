// Volumes measures the file volume by itself, on each path to the data and at several depths,
// beside fio with the same engine on the same file, turn by turn in one run: what matters is the
// ratio of the two. fio is Debian's (`apt install fio`).
//
//	go run ./tests/volumes -file /var/tmp/bench.img -rw randread,randwrite -bs 4k,128k
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// wanted is the least ratio to fio that is good enough.
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
}

// path is a way to the data, and fio's name for it. fio's psync has one request a job, so there
// it has as many jobs as the depth.
type path struct {
	name   string
	mode   blockdev.IOMode
	engine string
	direct bool
}

var allPaths = []path{
	{"buffered", blockdev.IOBuffered, "psync", false},
	{"direct", blockdev.IODirect, "psync", true},
	{"uring", blockdev.IOUring, "io_uring", true},
}

func main() {
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
	var size, paths, sizes, depths, rws string
	flag.StringVar(&p.file, "file", "volumes-bench.img", "file to measure on; created where it doesn't exist, and overwritten")
	flag.StringVar(&size, "size", "512MiB", "its size")
	flag.DurationVar(&p.runtime, "runtime", time.Second, "how long each measurement runs")
	flag.IntVar(&p.rounds, "rounds", 3, "how often each is repeated")
	flag.StringVar(&paths, "paths", "buffered,direct,uring", "paths to the data")
	flag.StringVar(&rws, "rw", "randread,randwrite", "fio's patterns: randread, randwrite")
	flag.StringVar(&sizes, "bs", "4k,128k", "block sizes")
	flag.StringVar(&depths, "depths", "1,4,16,32,128", "requests at a time")
	flag.Parse()
	if p.size, err = blockdev.ParseSize(size); err != nil {
		return nil, err
	}
	for _, s := range strings.Split(paths, ",") {
		i := slices.IndexFunc(allPaths, func(p path) bool { return p.name == s })
		if i < 0 {
			return nil, fmt.Errorf("-paths: no path is called %q", s)
		}
		p.paths = append(p.paths, allPaths[i])
	}
	p.rws = strings.Split(rws, ",")
	for _, rw := range p.rws {
		if rw != "randread" && rw != "randwrite" {
			return nil, fmt.Errorf("-rw: %q is neither randread nor randwrite", rw)
		}
	}
	for _, s := range strings.Split(sizes, ",") {
		n, err := blockdev.ParseSize(s)
		if err != nil || n < 4096 || n%4096 != 0 || n > p.size {
			return nil, fmt.Errorf("-bs: %q is no multiple of 4096 within the file", s)
		}
		p.sizes = append(p.sizes, int(n))
	}
	for _, s := range strings.Split(depths, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-depths: %q is no number of requests", s)
		}
		p.depths = append(p.depths, n)
	}
	return p, nil
}

func run(p *plan) error {
	fio, err := exec.LookPath("fio")
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes: without fio there is nothing to compare with: apt install fio")
	}
	if err := fill(p); err != nil {
		return err
	}
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.AppendHeader(table.Row{"path", "pattern", "block", "depth", "volume/s", "fio/s", "ratio", ""})
	good, all := 0, 0
	for _, way := range p.paths {
		fmt.Fprintln(os.Stderr, way.name)
		for _, rw := range p.rws {
			for _, bs := range p.sizes {
				for _, depth := range p.depths {
					w := work{file: p.file, size: p.size, path: way, write: rw == "randwrite", bs: bs, depth: depth, runtime: p.runtime}
					ours, theirs, err := compare(w, fio, p.rounds)
					if err != nil {
						return fmt.Errorf("%s, %s, %d bytes, depth %d: %w", way.name, rw, bs, depth, err)
					}
					row := table.Row{way.name, rw, blockdev.FormatSize(int64(bs)), depth, fmt.Sprintf("%.0f", ours)}
					if fio != "" {
						ratio := ours / theirs
						note := ""
						if all++; ratio >= wanted {
							good++
						} else {
							note = "below"
						}
						row = append(row, fmt.Sprintf("%.0f", theirs), fmt.Sprintf("%.2f", ratio), note)
					}
					t.AppendRow(row)
				}
			}
		}
	}
	t.Render()
	if fio != "" {
		fmt.Printf("%d of %d at %.0f%% of fio or more; medians of %d rounds\n", good, all, wanted*100, p.rounds)
	}
	return nil
}

// compare measures both turn by turn, and gives the medians of requests a second.
func compare(w work, fio string, rounds int) (ours, theirs float64, err error) {
	var a, b []float64
	for range rounds {
		n, err := w.volume()
		if err != nil {
			return 0, 0, err
		}
		a = append(a, n)
		if fio == "" {
			continue
		}
		if n, err = w.fio(fio); err != nil {
			return 0, 0, err
		}
		b = append(b, n)
	}
	return median(a), median(b), nil
}

func median(a []float64) float64 {
	if len(a) == 0 {
		return 0
	}
	slices.Sort(a)
	return a[len(a)/2]
}
