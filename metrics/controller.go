package metrics

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// controllerView is what is shown of a controller. Its identifier distinguishes it from all
// others of a target; everything else that is known of it is shown once, by
// nvmeof_controller_info.
type controllerView struct {
	values   [5]string // the values of infoLabels
	id       labels
	info     labels
	c        *target.ControllerStats
	inFlight int
	io       target.IOStats
}

// infoLabels are the labels of nvmeof_controller_info; other metrics only have the first.
var infoLabels = []string{"cntlid", "subsystem", "transport", "host_nqn", "remote"}

// fill fills in the rest of a view from its controller.
func (v *controllerView) fill(nqn string) {
	v.values = [...]string{
		strconv.FormatUint(uint64(v.c.CNTLID), 10), text(nqn), v.c.Transport.String(), text(v.c.HostNQN),
		text(v.c.Remote.Addr().String()),
	}
	v.info = label(infoLabels, v.values[:])
	v.id = v.info[:bytes.IndexByte(v.info, ',')] // the first label
	v.io = v.c.Retired
	for i := range v.c.Queues {
		v.inFlight += v.c.Queues[i].InFlight
		v.io.Add(&v.c.Queues[i].IO)
	}
}

// op returns the statistics of the i-th kind of command, in the order of opNames.
func (v *controllerView) op(i int) *target.OpStats {
	return [...]*target.OpStats{&v.io.Read, &v.io.Write, &v.io.Other}[i]
}

// controllerFamily is a metric of a controller.
type controllerFamily struct {
	name, kind, help string

	informs bool     // it has all infoLabels
	of      string   // an additional label, with a sample for each of …
	values  []string // … its values
	nanos   bool     // read returns nanoseconds, which are shown as seconds
	read    familyReader
	more    []string // the additional label, formatted to follow others
	metric  metric
}

// familyReader returns the i-th sample of a family.
type familyReader func(v *controllerView, i int) uint64

var (
	opNames    = []string{"read", "write", "other"}
	stageNames = func() (all []string) {
		for s := range target.NumStages {
			all = append(all, s.String())
		}
		return all
	}()
)

// controllerFamilies are all metrics of a controller.
var controllerFamilies = prepared(
	controllerFamily{name: "controller_info", kind: "gauge", help: "The host of a controller, with the value 1.", informs: true,
		read: func(*controllerView, int) uint64 { return 1 }},
	controllerFamily{name: "controller_queues", kind: "gauge", help: "Queues of the controller, the admin queue too.",
		read: func(v *controllerView, _ int) uint64 { return uint64(len(v.c.Queues)) }},
	controllerFamily{name: "controller_commands_in_flight", kind: "gauge", help: "Commands under way now.",
		read: func(v *controllerView, _ int) uint64 { return uint64(max(v.inFlight, 0)) }},
	controllerFamily{name: "controller_start_time_seconds", kind: "gauge", help: "When the controller was made, since 1970.", nanos: true,
		read: func(v *controllerView, _ int) uint64 { return uint64(v.c.Since.UnixMilli()) * 1e6 }},
	controllerFamily{name: "controller_commands_total", kind: "counter", help: "Commands the controller has completed, in error too.",
		of: "op", values: opNames,
		read: func(v *controllerView, i int) uint64 { return v.op(i).Ops }},
	controllerFamily{name: "controller_bytes_total", kind: "counter", help: "Bytes of data of the commands the controller has completed without error.",
		of: "op", values: opNames[:2],
		read: func(v *controllerView, i int) uint64 { return v.op(i).Bytes }},
	controllerFamily{name: "controller_command_seconds_total", kind: "counter",
		help: "Time from the arrival of a command to its response, added up.", of: "op", values: opNames, nanos: true,
		read: func(v *controllerView, i int) uint64 { return v.op(i).Nanos }},
	controllerFamily{name: "controller_command_errors_total", kind: "counter", help: "Commands the controller has completed in error.",
		read: func(v *controllerView, _ int) (n uint64) {
			for _, k := range v.io.Errors {
				n += k
			}
			return n
		}},
	controllerFamily{name: "controller_sampled_commands_total", kind: "counter", help: "Commands whose stages were measured.",
		read: func(v *controllerView, _ int) uint64 { return v.io.Stages.Sampled }},
	controllerFamily{name: "controller_sampled_seconds_total", kind: "counter", help: stageHelp, of: "stage", values: stageNames, nanos: true,
		read: func(v *controllerView, i int) uint64 { return v.io.Stages.Nanos[i] }},
)

const stageHelp = "Time of the commands whose stages were measured, by stage: " +
	"waiting for memory, receiving data, with the volume, sending the answer."

// prepared fills in what is the same for every controller, for both formats.
func prepared(families ...controllerFamily) []controllerFamily {
	for i := range families {
		f := &families[i]
		labels := infoLabels[:1]
		if f.informs {
			labels = infoLabels
		}
		if f.of == "" {
			f.more = []string{""}
		} else {
			labels = append(labels[:len(labels):len(labels)], f.of)
			for _, value := range f.values {
				f.more = append(f.more, fmt.Sprintf(",%s=%q", f.of, value))
			}
		}
		kind := map[string]prometheus.ValueType{"gauge": prometheus.GaugeValue, "counter": prometheus.CounterValue}[f.kind]
		f.metric = metric{newDesc(f.name, f.help, labels), kind}
	}
	return families
}

// write writes the family for a controller.
func (f *controllerFamily) write(e *exposition, v *controllerView) {
	l := v.id
	if f.informs {
		l = v.info
	}
	for i, more := range f.more {
		if n := f.read(v, i); f.nanos {
			e.seconds(f.name, l, more, n)
		} else {
			e.count(f.name, l, more, n)
		}
	}
}

// collect passes the family for a controller to the library.
func (f *controllerFamily) collect(ch chan<- prometheus.Metric, v *controllerView) {
	labels := v.values[:1]
	if f.informs {
		labels = v.values[:]
	}
	for i := range f.more {
		of := labels
		if f.of != "" {
			of = slices.Concat(labels, f.values[i:i+1])
		}
		n := float64(f.read(v, i))
		if f.nanos {
			n /= 1e9
		}
		send(ch, f.metric, n, of...)
	}
}

// controllers returns the number of controllers.
func controllers(snaps []target.Snapshot) (n int) {
	for i := range snaps {
		n += snaps[i].Controllers
	}
	return n
}

// controllerViews returns views of all controllers in snapshots of targets.
func controllerViews(snaps []target.Snapshot) []controllerView {
	views := make([]controllerView, 0, controllers(snaps))
	for i := range snaps {
		for j := range snaps[i].Subsystems {
			sub := &snaps[i].Subsystems[j]
			for k := range sub.Controllers {
				views = append(views, controllerView{c: &sub.Controllers[k]})
				views[len(views)-1].fill(sub.NQN)
			}
		}
	}
	return views
}

// controllers writes the metrics of all controllers in snapshots of targets.
func (e *exposition) controllers(snaps []target.Snapshot) {
	views := controllerViews(snaps)
	if len(views) == 0 {
		return
	}
	for i := range controllerFamilies {
		f := &controllerFamilies[i]
		e.family(f.name, f.kind, f.help)
		for j := range views {
			f.write(e, &views[j])
		}
	}
}

// collectControllers passes the same metrics to the library, which takes longer.
func collectControllers(ch chan<- prometheus.Metric, snaps []target.Snapshot) {
	views := controllerViews(snaps)
	for i := range views {
		for j := range controllerFamilies {
			controllerFamilies[j].collect(ch, &views[i])
		}
	}
}
