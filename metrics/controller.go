package metrics

import (
	"bytes"
	"strconv"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// controllerView is what is shown of a controller. Its identifier tells it from all others of a
// target; what else is known of it is said once, by nvmeof_controller_info.
type controllerView struct {
	id       labels
	info     labels
	c        *target.ControllerStats
	inFlight int
	io       target.IOStats
}

// fill makes the rest of a view of its controller.
func (v *controllerView) fill(nqn string) {
	id := strconv.FormatUint(uint64(v.c.CNTLID), 10)
	v.info = label("cntlid", id, "subsystem", nqn,
		"transport", v.c.Transport.String(), "host_nqn", v.c.HostNQN, "remote", v.c.Remote.Addr().String())
	v.id = v.info[:bytes.IndexByte(v.info, ',')] // the first of them
	v.io = v.c.Retired
	for i := range v.c.Queues {
		v.inFlight += v.c.Queues[i].InFlight
		v.io.Add(&v.c.Queues[i].IO)
	}
}

// ops are the kinds of commands.
func (v *controllerView) ops() []*target.OpStats {
	return []*target.OpStats{&v.io.Read, &v.io.Write, &v.io.Other}
}

// opLabels are written after the labels of a controller.
var opLabels = [...]string{`,op="read"`, `,op="write"`, `,op="other"`}

// controllerFamilies are all metrics of a controller.
var controllerFamilies = []struct {
	name, kind, help string
	write            func(e *exposition, name string, v *controllerView)
}{
	{"controller_info", "gauge", "The host of a controller, with the value 1.",
		func(e *exposition, name string, v *controllerView) { e.count(name, v.info, "", 1) }},
	{"controller_queues", "gauge", "Queues of the controller, the admin queue too.",
		func(e *exposition, name string, v *controllerView) { e.count(name, v.id, "", uint64(len(v.c.Queues))) }},
	{"controller_commands_in_flight", "gauge", "Commands under way now.",
		func(e *exposition, name string, v *controllerView) {
			e.count(name, v.id, "", uint64(max(v.inFlight, 0)))
		}},
	{"controller_start_time_seconds", "gauge", "When the controller was made, since 1970.",
		func(e *exposition, name string, v *controllerView) {
			e.seconds(name, v.id, "", uint64(v.c.Since.UnixMilli())*1e6)
		}},
	{"controller_commands_total", "counter", "Commands the controller has completed, in error too.",
		func(e *exposition, name string, v *controllerView) {
			for i, o := range v.ops() {
				e.count(name, v.id, opLabels[i], o.Ops)
			}
		}},
	{"controller_bytes_total", "counter", "Bytes of data of the commands the controller has completed.",
		func(e *exposition, name string, v *controllerView) {
			for i, o := range v.ops()[:2] {
				e.count(name, v.id, opLabels[i], o.Bytes)
			}
		}},
	{"controller_command_seconds_total", "counter", "Time from the arrival of a command to its response, added up.",
		func(e *exposition, name string, v *controllerView) {
			for i, o := range v.ops() {
				e.seconds(name, v.id, opLabels[i], o.Nanos)
			}
		}},
	{"controller_command_errors_total", "counter", "Commands the controller has completed in error.",
		func(e *exposition, name string, v *controllerView) {
			var n uint64
			for _, k := range v.io.Errors {
				n += k
			}
			e.count(name, v.id, "", n)
		}},
	{"controller_sampled_commands_total", "counter", "Commands whose stages were measured.",
		func(e *exposition, name string, v *controllerView) { e.count(name, v.id, "", v.io.Stages.Sampled) }},
	{"controller_sampled_seconds_total", "counter", stageHelp,
		func(e *exposition, name string, v *controllerView) {
			for s, n := range v.io.Stages.Nanos {
				e.seconds(name, v.id, stageLabels[s], n)
			}
		}},
}

const stageHelp = "Time of the commands whose stages were measured, by stage: " +
	"waiting for memory, receiving data, with the volume, sending the answer."

// stageLabels are written after the labels of a controller.
var stageLabels = func() (all [target.NumStages]string) {
	for s := range target.NumStages {
		all[s] = `,stage="` + s.String() + `"`
	}
	return all
}()

// controllers is how many there are.
func controllers(snaps []target.Snapshot) (n int) {
	for i := range snaps {
		n += snaps[i].Controllers
	}
	return n
}

// controllers writes the metrics of all controllers in snapshots of targets.
func (e *exposition) controllers(snaps []target.Snapshot) {
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
	if len(views) == 0 {
		return
	}
	for _, f := range controllerFamilies {
		e.family(f.name, f.kind, f.help)
		for i := range views {
			f.write(e, f.name, &views[i])
		}
	}
}
