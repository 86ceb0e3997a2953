// Package metrics exports to Prometheus what other packages count. No other package depends on Prometheus; they keep
// plain counters, which are read here when someone scrapes. So serving metrics adds no cost to an I/O.
//
//	m := metrics.New()
//	m.AddTarget(tgt)
//	m.AddRNIC("127.0.0.1", nic)
//	s, err := m.Serve("127.0.0.1:9464")
//
// A program that has a registry registers the Set there instead, as it is a prometheus.Collector:
//
//	prometheus.MustRegister(m)
//
// A [Set] may be used from any goroutine; things may be added and removed while it is scraped. What is added is kept,
// and shown, until the function that Add… returns is called. The counters of listeners and transports are sums, which
// keep what removed ones counted.
//
// # Names and labels
//
// Names begin with "nvmeof_" and the package. Labels are bounded: by what a configuration names (subsystem, nsid,
// volume, device), by a limit (cntlid, queue), or by a specification (transport, op, message, type …). The name and
// address of a host are labels of only one metric, nvmeof_controller_info, which has one series per controller: all
// other metrics of a controller have its cntlid, which is unique in a target, and no other label of a host. With a
// thousand hosts that makes 18,000 series in 1.3 MB, so these are formatted by our own code (exposition). The directory
// dashboards has a dashboard for Grafana.
package metrics
