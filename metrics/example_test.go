package metrics_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/metrics"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// A program that already has an HTTP server adds the handler to it; Serve makes a server.
func ExampleSet_Handler() {
	volume, err := blockdev.Open("mem:1MiB", blockdev.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer volume.Close()
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: "nqn.2024-01.com.example:memory", AllowAnyHost: true,
		Namespaces: []target.NamespaceConfig{{Volume: volume}},
	}}})
	if err != nil {
		log.Fatal(err)
	}

	figures := metrics.New()
	figures.AddTarget(tgt)
	defer figures.AddVolume("memory", volume)() // shown until then
	mux := http.NewServeMux()
	mux.Handle("/", figures.Handler())
	server := httptest.NewServer(mux)
	defer server.Close()

	answer, err := http.Get(server.URL + "/metrics")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "nvmeof_volume_size_bytes") {
			fmt.Print(line)
		}
	}
	// Output: nvmeof_volume_size_bytes{volume="memory"} 1.048576e+06
}

// A program with its own registry registers the Set there. It removes from the Set what it closes.
func ExampleSet() {
	figures := metrics.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(figures)

	volume, err := blockdev.Open("mem:1MiB", blockdev.Options{})
	if err != nil {
		log.Fatal(err)
	}
	remove := figures.AddVolume("memory", volume)
	fmt.Println(testutil.GatherAndCount(registry, "nvmeof_volume_size_bytes"))
	remove()
	if err := volume.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(testutil.GatherAndCount(registry, "nvmeof_volume_size_bytes"))
	// Output:
	// 1 <nil>
	// 0 <nil>
}
