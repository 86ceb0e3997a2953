package fio

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// idle are options that many job files have, for the sake of files and of the kernel's interfaces or to ask for what is
// so here in any case, and that change nothing: commands go to one namespace, past every cache. Those that would change
// something with another value have the only one that they may have.
var idle = map[string]string{
	"ioengine": "", "filename": "", "direct": "1", "thread": "", "invalidate": "", "allow_mounted_write": "",
	"hipri": "", "fixedbufs": "", "registerfiles": "", "sqthread_poll": "",
	"description": "", "new_group": "", "clat_percentiles": "1", "unified_rw_reporting": "0", "gtod_reduce": "0",
	"disable_lat": "0", "disable_clat": "0", "disable_slat": "", "disable_bw_measurement": "0", "scramble_buffers": "0",
	"fadvise_hint": "", "log_entries": "", "do_verify": "1", "verify_fatal": "1", "verify_dump": "", "verify_state_save": "0",
	"buffered": "0", "lat_percentiles": "0", "slat_percentiles": "0", "zero_buffers": "0",
	"iodepth_batch": "1", "iodepth_batch_submit": "1", "iodepth_batch_complete": "1", "iodepth_batch_complete_min": "1",
	"nrfiles": "1", "openfiles": "", "file_service_type": "", "fallocate": "", "create_serialize": "", "create_on_open": "0",
	"unlink": "", "overwrite": "", "random_generator": "", "softrandommap": "", "disk_util": "0", "latency_run": "0", "zonemode": "none",
	"exitall_on_error": "1", "continue_on_error": "none",
	"io_submit_mode": "", // with a rate, operations begin when they are due, as with offload
}

// Idle is an option of a job file that changes nothing.
type Idle struct {
	Line          int
	Option, Value string
}

// Notice says which options of the file change nothing; empty where all do.
func (f *File) Notice() string {
	if len(f.Idle) == 0 {
		return ""
	}
	var names []string
	for _, i := range f.Idle {
		if !slices.Contains(names, i.Option) {
			names = append(names, i.Option)
		}
	}
	return "without effect here: " + strings.Join(names, ", ")
}

// takeIdle takes an option that changes nothing; false where it is none of them, or would change something.
func (f *File) takeIdle(line int, option, value string) (bool, error) {
	only, known := idle[option]
	if !known || only != "" && cmp.Or(value, "1") != only { // one without a value asks for what it is called after
		return false, nil
	}
	for _, i := range f.Idle {
		if option == "filename" && i.Option == option && i.Value != value {
			return false, fmt.Errorf("filename=%s, and %s in line %d: all jobs run on one namespace, that of --nsid", value, i.Value, i.Line)
		}
	}
	f.Idle = append(f.Idle, Idle{line, option, value})
	return true, nil
}
