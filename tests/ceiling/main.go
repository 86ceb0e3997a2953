// Ceiling measures what a pair of bare UDP sockets can do on this machine, with packets moved as the software RNIC
// moves them, which is the figure to compare the RNIC with; and what bare TCP sockets can do, however many share the
// same number of requests. Two processes on loopback exchange 64-byte requests and answers of the RNIC's packet sizes,
// at several depths, without and with what RoCE adds to each packet: a CRC-32 made and checked, and the payload copied
// to its place.
//
//	go run ./tests/ceiling [-time 1s] [-json] [-busy-poll 50µs] [-random] [-bs 4k -depth 32 [-bare]]
//	go run ./tests/ceiling [-time 1s] [-json] -tcp 16 -depth 64
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Result is one line of the table.
type Result struct {
	Answer       string  `json:"answer"` // what a request is answered with
	Depth        int     `json:"depth"`  // requests outstanding
	CRC          bool    `json:"crc"`
	Copy         bool    `json:"copy"`
	PerSecond    float64 `json:"requests_per_second"`
	MBPerSecond  float64 `json:"payload_mb_per_second"`
	MeanMicros   float64 `json:"mean_us"` // from request to its last datagram
	MedianMicros float64 `json:"p50_us"`
	CPUMicros    float64 `json:"cpu_us_per_request"` // of both processes
	PerReceive   float64 `json:"datagrams_per_recv"` // at the requester
	PerSend      float64 `json:"requests_per_send"`  // at the requester
	Lost         uint64  `json:"datagrams_lost"`     // to a full socket
}

func main() {
	if spec := os.Getenv(answererEnv); spec != "" {
		exitOn(answer(spec))
		return
	}
	duration := flag.Duration("time", time.Second, "how long each line is measured")
	asJSON := flag.Bool("json", false, "print JSON instead of a table")
	bs := flag.String("bs", "", "measure only answers with this much data, as 4k …")
	depth := flag.Int("depth", 1, "… at this depth …")
	bare := flag.Bool("bare", false, "… without CRC and copy")
	random := flag.Bool("random", false, "answer with blocks from anywhere, as random reads of a volume are, and not one after the other")
	poll := flag.Duration("busy-poll", udp.DefaultBusyPoll, "how long to look for datagrams before sleeping; 0: never")
	tcp := flag.Int("tcp", 0, "measure this many TCP connections instead, with -depth requests outstanding in all")
	flag.Parse()

	all := workloads(*random, *poll)
	if *bs != "" {
		data, err := blockdev.ParseSize(*bs)
		exitOn(err)
		if data < 1 || data > maxData {
			exitOn(fmt.Errorf("-bs %s: want 1 byte to %d", *bs, maxData))
		}
		all = []workload{{int(data), max(1, *depth), !*bare, !*bare, *random, *poll}}
	}
	var results []Result
	if *tcp > 0 {
		all = nil
		r, err := measureTCP(tcpLoad{*tcp, max(1, *depth / *tcp)}, *duration)
		exitOn(err)
		results = append(results, r)
	}
	for _, w := range all {
		r, err := measure(w, *duration)
		exitOn(err)
		results = append(results, r)
	}
	if *asJSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		exitOn(out.Encode(results))
		return
	}
	render(results)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "ceiling:", err)
		os.Exit(1)
	}
}

func render(results []Result) {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"answer", "depth", "CRC", "copy", "requests/s", "MB/s", "mean µs", "p50 µs",
		"CPU µs", "dgrams/recv", "reqs/send", "lost"})
	var right []table.ColumnConfig
	for i := 5; i <= 12; i++ {
		right = append(right, table.ColumnConfig{Number: i, Align: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	for _, r := range results {
		t.AppendRow(table.Row{r.Answer, r.Depth, mark(r.CRC), mark(r.Copy),
			fmt.Sprintf("%.0f", r.PerSecond), fmt.Sprintf("%.0f", r.MBPerSecond),
			fmt.Sprintf("%.1f", r.MeanMicros), fmt.Sprintf("%.1f", r.MedianMicros),
			fmt.Sprintf("%.2f", r.CPUMicros), fmt.Sprintf("%.1f", r.PerReceive), fmt.Sprintf("%.1f", r.PerSend), r.Lost})
	}
	t.Render()
}

func mark(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
