package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// requester keeps depth requests outstanding. It sends a new one for each that is answered, all those for a received
// batch together.
type requester struct {
	workload
	conn     udp.Conn
	out      batch
	requests [][]byte
	places   [][]byte // where the data of each request goes
	sent     []time.Time
	waited   loadgen.Histogram
}

// patience is how long to wait for an answer: without retransmission, a lost datagram leaves its request unanswered for
// ever.
const patience = 10 * time.Second

func newRequester(w workload, conn udp.Conn, peer netip.AddrPort) *requester {
	r := &requester{workload: w, conn: conn, out: batch{conn: conn, peer: peer}, sent: make([]time.Time, w.depth)}
	for i := range w.depth {
		q := make([]byte, requestSize)
		putTag(q, i)
		w.seal(q[requestSize-crcSize:], q[:requestSize-crcSize])
		r.requests = append(r.requests, q)
		r.places = append(r.places, make([]byte, w.data))
	}
	return r
}

// run continues until the time is over and every answer has come.
func (r *requester) run(duration time.Duration) error {
	start := time.Now()
	guard := time.AfterFunc(duration+patience, func() { r.conn.Close() })
	defer guard.Stop()
	rx := make([]udp.Received, udp.RecvBatch)
	for i := range r.depth {
		r.submit(i, start)
	}
	if err := r.out.send(); err != nil {
		return err
	}
	for outstanding := r.depth; outstanding > 0; {
		n, err := r.conn.Recv(rx)
		if err != nil {
			return err
		}
		now := time.Now()
		more := now.Sub(start) < duration
		for i := range rx[:n] {
			for d := range rx[i].Datagrams() {
				finished, err := r.take(d, now)
				if err != nil {
					return err
				}
				if finished && more {
					r.submit(tag(d), now)
				} else if finished {
					outstanding--
				}
			}
		}
		if err := r.out.send(); err != nil {
			return err
		}
	}
	return nil
}

func (r *requester) submit(i int, now time.Time) {
	r.sent[i] = now
	r.out.add(r.requests[i])
}

// take handles one datagram and reports whether it completes a request.
func (r *requester) take(d []byte, now time.Time) (bool, error) {
	if err := r.check(d); err != nil {
		return false, err
	}
	if len(d) == responseSize {
		r.answered(tag(d), now)
		return true, nil
	}
	i := index(d)
	if i >= r.packets() {
		return false, fmt.Errorf("packet %d of %d arrived", i, r.packets())
	}
	n, want := r.part(i), headerSize+r.part(i)+crcSize
	if r.along() {
		want += messageSize
	}
	if len(d) != want {
		return false, fmt.Errorf("a datagram of %d bytes arrived", len(d))
	}
	if r.copy {
		copy(r.places[tag(d)][i*longest:], d[headerSize:headerSize+n])
	}
	if r.along() {
		r.answered(tag(d), now)
	}
	return r.along(), nil
}

// answered records how long request i took.
func (r *requester) answered(i int, now time.Time) { r.waited.Record(int64(now.Sub(r.sent[i]))) }

// measure runs a workload against another process.
func measure(w workload, duration time.Duration) (Result, error) {
	conn, err := udp.Listen(loopback(), w.config())
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	// What is outstanding must fit into the socket: nothing is retransmitted here.
	w.depth = max(1, min(w.depth, conn.RecvBuffer()/(2*(w.data+responseSize))))
	other, stop, err := startAnswerer(w.spec())
	if err != nil {
		return Result{}, err
	}
	r := newRequester(w, conn, other)
	before, start := cpu(syscall.RUSAGE_SELF)+cpu(syscall.RUSAGE_CHILDREN), time.Now()
	err = r.run(duration)
	took := time.Since(start)
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	spent := cpu(syscall.RUSAGE_SELF) + cpu(syscall.RUSAGE_CHILDREN) - before
	k := conn.(udp.Counted).Counters()
	if errors.Is(err, udp.ErrClosed) {
		err = fmt.Errorf("%d requests at depth %d: an answer is missing (%d datagrams lost in the socket)",
			r.waited.Count(), w.depth, k.RxKernelDrops.Load())
	}
	if err != nil {
		return Result{}, err
	}
	n := float64(r.waited.Count())
	return Result{
		Answer: fmt.Sprintf("%d KiB in %d", w.data>>10, w.packets()), Depth: w.depth, CRC: w.crc, Copy: w.copy,
		PerSecond: n / took.Seconds(), MBPerSecond: n * float64(w.data) / 1e6 / took.Seconds(),
		MeanMicros: r.waited.Mean() / 1e3, MedianMicros: float64(r.waited.Percentile(50)) / 1e3, CPUMicros: float64(spent.Microseconds()) / n,
		PerReceive: float64(k.RxDatagrams.Load()) / float64(k.RxSyscalls.Load()),
		PerSend:    float64(k.TxDatagrams.Load()) / float64(k.TxSyscalls.Load()),
		Lost:       k.RxKernelDrops.Load(),
	}, nil
}

// startAnswerer starts the other process, which is this program again.
func startAnswerer(spec string) (addr netip.AddrPort, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return addr, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), answererEnv+"="+spec)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return addr, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return addr, nil, err
	}
	if err := cmd.Start(); err != nil {
		return addr, nil, err
	}
	stop = func() error {
		in.Close()
		return cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		addr, err = netip.ParseAddrPort(strings.TrimSpace(line))
	}
	if err != nil {
		return addr, nil, errors.Join(fmt.Errorf("the answering process said %q: %w", line, err), stop())
	}
	return addr, stop, nil
}

// cpu returns the processor time of this process, or of those it has waited for.
func cpu(who int) time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
