package main

import (
	"fmt"

	"github.com/nvme-anywhere/nvmeof/metrics"
)

// serveMetrics serves the figures of everything that is open, where --metrics asks for it.
func (s *server) serveMetrics() error {
	if s.flags.metrics == "" {
		return nil
	}
	set := metrics.New()
	set.AddTarget(s.target)
	for i, v := range s.volumes {
		set.AddVolume(fmt.Sprintf("%d", i+1), v)
	}
	for addr, nic := range s.rnics {
		set.AddRNIC(addr.String(), nic)
	}
	for _, l := range s.rdma {
		set.AddRDMA(metrics.Target, l.Stats())
	}
	for _, svc := range s.tcp {
		set.AddTCP(metrics.Target, svc.listener.Counters())
	}
	srv, err := set.Serve(s.flags.metrics)
	if err != nil {
		return err
	}
	s.onClose(srv.Close)
	fmt.Fprintf(s.out, "metrics http://%s/metrics\n", srv.Addr())
	return nil
}
