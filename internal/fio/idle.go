package fio

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// idle holds options that many job files and scripts have, because of files or the kernel's interfaces, or to
// request what is always so here, and that change nothing: commands go to one namespace, past every cache. If
// another value would change something, the map holds the only value allowed.
var idle = map[string]string{
	"ioengine": "", "filename": "", "directory": "", "direct": "1", "thread": "", "invalidate": "", "allow_mounted_write": "",
	"hipri": "", "fixedbufs": "", "registerfiles": "", "sqthread_poll": "", "sqthread_poll_cpu": "", "nonvectored": "", "cmd_type": "",
	"userspace_reap": "", "nowait": "", "mem": "", "iomem": "", "mem_align": "", "iomem_align": "", "hugepage-size": "", "lockmem": "", "gtod_cpu": "", "create_fsync": "",
	"max-jobs": "", "alloc-size": "", "aux-path": "", "warnings-fatal": "", // there are no such limits, and unknown options are errors
	"kb_base": "1024", "unit_base": "8", "significant_figures": "", "allrandrepeat": "1", "bs_unaligned": "1",
	"scramble_buffers": "0",
	"gtod_reduce":      "", "disable_lat": "", "disable_clat": "", "disable_slat": "", "disable_bw_measurement": "", "disable_bw": "",
	"terse-version": "3", "eta": "", "eta-newline": "", "eta-interval": "",
	"fadvise_hint": "", "log_entries": "", "verify_fatal": "1", "verify_dump": "", "verify_state_save": "0",
	"buffered": "0", "slat_percentiles": "0",
	// The most that fio hands to the kernel, or takes from it, by one call: it keeps the depth with any.
	"iodepth_batch": "", "iodepth_batch_submit": "", "iodepth_batch_complete_max": "",
	"iodepth_batch_complete": "1", "iodepth_batch_complete_min": "1",
	"nrfiles": "1", "openfiles": "", "file_service_type": "", "fallocate": "", "create_serialize": "", "create_on_open": "0",
	"unlink": "", "overwrite": "", "random_generator": "", "softrandommap": "", "disk_util": "0", "latency_run": "0", "zonemode": "none",
	"exitall_on_error": "1", "continue_on_error": "none", "rate_ignore_thinktime": "0",
	"nr_files": "1", "unique_filename": "", "unlink_each_loop": "", "lockfile": "none", "file_append": "0", "allow_file_create": "",
	"blocksize_unaligned": "1", "bs_is_seq_rand": "0", "rw_sequencer": "sequential", "write_hint": "none", "gpu_dev_id": "",
	"uncached": "", "force_async": "", "hipri_percentage": "", "pre_read": "0", "create_only": "0", "fill_device": "0", "fill_fs": "0",
	"verifysort": "", "verifysort_nr": "", "verify_state_load": "0", "experimental_verify": "0", "trim_percentage": "0",
	"write_barrier": "0", "atomic": "0", "fsync_on_close": "0", "serialize_overlap": "0", "error_dump": "0",
	"dedupe_mode": "repeat", "dedupe_global": "0", "stats": "1", "log_alternate_epoch": "0",
	"rate_cycle": "", "ratecycle": "", // over how long a rate_min is to be kept
	"io_submit_mode": "", // with a rate, operations begin when they are due, as with offload
}

// bare holds those of idle that need no value: alone they request what their name says. fio demands one for the
// others on its command line, and takes the next argument for it.
var bare = []string{
	"thread", "hipri", "fixedbufs", "registerfiles", "sqthread_poll", "userspace_reap", "bs_unaligned", "blocksize_unaligned", "exitall_on_error", "warnings-fatal",
}

// Idle is an option that changes nothing, as it was given.
type Idle struct {
	Line          int // of a job file
	Option, Value string
}

// Idles holds the options of a job file or of a command line that change nothing.
type Idles []Idle

// IdleNames returns the names of all options that may be among them, and of those that need no value.
func IdleNames() (all, alone []string) { return slices.Sorted(maps.Keys(idle)), bare }

// Notice says which options change nothing; it returns "" if there are none.
func (s Idles) Notice() string {
	if len(s) == 0 {
		return ""
	}
	var names []string
	for _, i := range s {
		if !slices.Contains(names, i.Option) {
			names = append(names, i.Option)
		}
	}
	return "without effect here: " + strings.Join(names, ", ")
}

// Take records an option of a command line. An option that would change something is an *UnknownOptionError.
func (s *Idles) Take(option, value string) error {
	taken, err := s.take(0, option, value)
	if err == nil && !taken {
		err = &UnknownOptionError{Option: option, Remedy: foreign[option]}
	}
	return err
}

// take records an option that changes nothing; it returns false if the option isn't one of these or would change
// something.
func (s *Idles) take(line int, option, value string) (bool, error) {
	only, known := idle[option]
	if !known || only != "" && cmp.Or(value, "1") != only { // an option without a value requests what its name says
		return false, nil
	}
	for _, i := range *s {
		if (option == "filename" || option == "directory") && i.Option == option && i.Value != value {
			before := i.Value
			if i.Line > 0 {
				before += fmt.Sprintf(" in line %d", i.Line)
			}
			return false, fmt.Errorf("%s=%s, and %s: all jobs run on one namespace, that of --nsid", option, value, before)
		}
	}
	*s = append(*s, Idle{line, option, value})
	return true, nil
}
