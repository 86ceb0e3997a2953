package tests

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// scraped holds the figures of a --metrics endpoint, by name and labels as they are written.
type scraped map[string]float64

// metricsPort is where a target's figures are, on its own address.
const metricsPort = "9090"

// scrape reads the figures of a target that was started with --metrics on metricsPort.
func (p *targetProgram) scrape(t testing.TB) scraped {
	t.Helper()
	s, err := readFigures(t, p.addr.String()+":"+metricsPort)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readFigures reads the figures that a program serves at an address and port.
func readFigures(t testing.TB, at string) (scraped, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	// An open connection would be one more descriptor and goroutine of the program.
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	s := scraped{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if s[line[:i]], err = strconv.ParseFloat(line[i+1:], 64); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return s, lines.Err()
}

// sum adds the figures of one name over all labels. A missing name fails the test: a missing figure would prove
// nothing.
func (s scraped) sum(t testing.TB, name string) float64 {
	t.Helper()
	var sum float64
	found := false
	for k, v := range s {
		if n, _, _ := strings.Cut(k, "{"); n == name {
			sum, found = sum+v, true
		}
	}
	if !found {
		t.Fatalf("no figure is called %s", name)
	}
	return sum
}

// holdings are what a target holds on behalf of hosts.
type holdings struct {
	controllers, queues, inFlight, rdma, tcp, cm, goroutines, fds float64
}

func (s scraped) holdings(t testing.TB) holdings {
	t.Helper()
	return holdings{
		controllers: s.sum(t, "nvmeof_target_controllers"),
		queues:      s.sum(t, "nvmeof_target_queues"),
		inFlight:    s.sum(t, "nvmeof_target_commands_in_flight"),
		rdma:        s.sum(t, "nvmeof_rdma_connections"),
		tcp:         s.sum(t, "nvmeof_tcp_connections"),
		cm:          s.sum(t, "nvmeof_cm_connections"),
		goroutines:  s.sum(t, "go_goroutines"),
		fds:         s.sum(t, "process_open_fds"),
	}
}

func (h holdings) String() string {
	return fmt.Sprintf("%v controllers, %v queues, %v commands in flight, %v RDMA, %v TCP and %v CM connections, %v goroutines, %v descriptors",
		h.controllers, h.queues, h.inFlight, h.rdma, h.tcp, h.cm, h.goroutines, h.fds)
}
