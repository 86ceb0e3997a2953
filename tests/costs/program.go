package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/tests/process"
)

const nqn = "nqn.2026-11.io.nvme-anywhere:costs"

// program is a running nvmetgt or nvmeinit, with its figures at addr.
type program struct {
	*process.Process
	addr  string // of the target; the figures of either side are at one of its ports
	port  string
	hosts []string // the beginning of commands that start hosts where they can reach the target, if that isn't here
}

// Ports of the figures.
const (
	targetPort = "9101"
	hostPort   = "9102"
	crowdPort  = "9103"
)

// startTarget starts nvmetgt on a loopback address of its own.
func (p *plan) startTarget(args ...string) (*program, error) {
	addr := process.LoopbackAddr()
	return p.start(addr, targetPort, "nvmetgt", serveArgs(addr, args)...)
}

// serveArgs returns the arguments that every target has, followed by args.
func serveArgs(addr string, args []string) []string {
	return append([]string{"serve", "--nqn", nqn, "--log-level", "error",
		"--listen", "rdma://" + addr + ":4420", "--listen", "tcp://" + addr + ":4420"}, args...)
}

// startBench starts nvmeinit bench, which runs until it is stopped.
func (p *plan) startBench(t *program, transport string, args ...string) (*program, error) {
	return p.startBenchAt(hostPort, t, transport, args...)
}

// startBenchAt is startBench for another one concurrent with it, with figures at another port.
func (p *plan) startBenchAt(port string, t *program, transport string, args ...string) (*program, error) {
	return p.start(t.addr, port, "nvmeinit", benchArgs(t, transport, 10*time.Minute, args)...)
}

// benchArgs returns the arguments that every benchmark of a target has, followed by args.
func benchArgs(t *program, transport string, runtime time.Duration, args []string) []string {
	return append([]string{"bench", "-t", transport, "-a", t.addr, "-n", nqn,
		"-o", "json", "--time_based", "--runtime", runtime.String()}, args...)
}

// start starts a program and waits until it serves its figures.
func (p *plan) start(addr, port, name string, args ...string) (*program, error) {
	cmd := exec.Command(filepath.Join(p.bin, name), append(args, "--metrics", addr+":"+port)...)
	run, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	r := &program{Process: run, addr: addr, port: port}
	for began := time.Now(); time.Since(began) < process.Patience; {
		if _, err := r.figures(); err == nil {
			return r, nil
		}
		select {
		case <-r.Ended():
			return nil, errors.Join(fmt.Errorf("%s has ended", cmd), r.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = r.Stop()
	return nil, fmt.Errorf("%s: nothing to see after %v", cmd, process.Patience)
}

// figures are a program's at one time: sums over all labels, by name, and for bytes sent and received separately by
// name and direction.
type figures map[string]float64

// metrics requests the program's figures.
func (r *program) metrics() (io.ReadCloser, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+r.addr+":"+r.port+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// scrape requests the figures and discards them.
func (r *program) scrape() error {
	body, err := r.metrics()
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// figures reads the program's figures.
func (r *program) figures() (figures, error) {
	body, err := r.metrics()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	f := figures{}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		name, labels, _ := strings.Cut(line[:i], "{")
		f[name] += v
		for _, way := range []string{"sent", "received"} {
			if strings.Contains(labels, `direction="`+way+`"`) {
				f[name+" "+way] += v
			}
		}
	}
	if f["process_cpu_seconds_total"] == 0 && f["go_threads"] == 0 {
		return nil, errors.New("these are no figures")
	}
	return f, lines.Err()
}

// since returns the difference of f from before.
func (f figures) since(before figures) figures {
	d := figures{}
	for name, v := range f {
		d[name] = v - before[name]
	}
	return d
}

// divide returns the figures divided by n.
func (f figures) divide(n float64) {
	for name := range f {
		f[name] /= n
	}
}
