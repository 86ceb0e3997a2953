// Package metrics gives Prometheus what the other rooms count. No other package knows
// Prometheus; theirs are plain counters, read here when someone scrapes. So serving metrics
// costs an I/O nothing.
//
//	m := metrics.New()
//	m.AddTarget(tgt)
//	m.AddRNIC("127.0.0.1", nic)
//	s, err := m.Serve("127.0.0.1:9090")
//
// A program that has a registry registers the Set there instead, which is a prometheus.Collector:
//
//	prometheus.MustRegister(m)
//
// A [Set] is safe for use by any goroutine; things may be added and removed while it is scraped. What is
// added is kept, and its figures shown, until the function is called that Add… returns. The counters of listeners
// and transports are sums that stay.
//
// # Names and labels
//
// Names begin with "nvmeof_" and the room. Labels are bounded, each by what a configuration
// names (subsystem, nsid, volume, device), by a limit (cntlid, queue), or by a specification
// (transport, op, message, type …). The name and address of a host are the labels of one
// metric only, nvmeof_controller_info, of which there are as many as controllers: what else is
// shown of a controller has its cntlid, which is unique in a target, and no other label of a host.
// With a thousand hosts that is 18,000 series in 1.3 MB, so these are written by hand (exposition). A dashboard
// for Grafana over all of this is in dashboards.
package metrics
