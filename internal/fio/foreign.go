package fio

// Remedies for options that concern files and the kernel's interfaces, that request a page cache or none, that
// write figures to files during a run, and so on.
const (
	noFabric   = "nvmeinit reaches the namespace by itself, by -t, -a and --nsid; leave the option out"
	noCache    = "commands go to the namespace past every cache of this machine; leave the option out"
	noLog      = "write_bw_log, write_iops_log and write_lat_log have the figures of each log_avg_msec of a run; leave the option out"
	noEpoch    = "with log_unix_epoch=1 times in logs are those of the system's clock; leave the option out"
	noFile     = "logs are gathered in memory, and are as large as log_avg_msec is short; leave the option out"
	noPlace    = "taskset or numactl say where nvmeinit runs, as taskset -c 0-3 nvmeinit bench; leave the option out"
	noTarget   = "latency_target finds the greatest depth at which latencies hold, and ends the job there; leave the option out"
	noFlow     = "rate or rate_iops have jobs go on at rates of their own, and so in proportion; leave the option out"
	noSettling = "ramp_time is how long figures have to settle, and write_iops_log shows whether they did; leave the option out"
	noBatch    = "an operation begins as soon as another ends; leave the option out"
	noBuffer   = "what is written is random, or as zero_buffers, buffer_compress_percentage and dedupe_percentage say; leave the option out"
	noZones    = "the namespace has no zones; jobs with an offset and a size of their own keep to parts of it; leave the option out"
	noPriority = "all commands are equal, and so are all queues; leave the option out"
	noMetadata = "data have no metadata beside them, and verify=crc32c checks them from end to end; leave the option out"
	noMercy    = "the first operation that fails ends the run; leave the option out"
	noLeast    = "a rate here is kept however late operations are; their latencies tell"
	noReplay   = "traces aren't replayed; rwmixread, bssplit and random_distribution make a load as theirs; leave the option out"
	noCommand  = "nvmeinit runs no other programs; have the shell run the command; leave the option out"
	noChecking = "verify reads everything back in the end, and the first block that differs ends the run; leave the option out"
	noFilling  = "a job without a size or a runtime goes through the whole namespace; leave the option out"
	noTrimming = "rw=trimwrite and randtrimwrite trim what they write next, and verify checks it; leave the option out"
	noUser     = "nvmeinit runs as who starts it, as sudo -u nobody nvmeinit bench; leave the option out"
	noCGroup   = "systemd-run --scope or cgexec start nvmeinit in a control group; leave the option out"
	noService  = "nvmeinit runs where it is started; start one on each host, as by ssh; leave the option out"
	noTrigger  = "timeout ends a run after a time, and kill -INT at any moment, and both leave the results; leave the option out"
	noSelfTest = "it tests code of fio's own; leave the option out"
)

// foreign holds the options of fio that many job files and scripts have and that have no meaning here.
var foreign = map[string]string{
	"opendir": noFabric, "lockfile": noFabric, "file_append": noFabric, "nr_files": noFabric,
	"log_hist_coarseness": noLog, "latency-log": noLog, "bandwidth-log": "write_bw_log has the bandwidth of each job; leave the option out",
	"verify_async_cpus": noChecking, "experimental_verify": noChecking,
	"verify_state_load": "rw=read with verify checks what an earlier run wrote, if offset and size keep to what that wrote completely; leave the option out",
	"verify_offset":     "what verify checks by is at the beginning of each block; leave the option out",
	"trim_percentage":   noTrimming, "trim_verify_zero": noTrimming, "trim_backlog": noTrimming, "trim_backlog_batch": noTrimming,
	"rwmixcycle":     "rwmixread is the share of reads among all operations; leave the option out",
	"rw_sequencer":   "operations between two random offsets follow each other; leave the option out",
	"bs_is_seq_rand": "bs has sizes of reads, writes and trims; a sequential and a random job can have sizes of their own; leave the option out",
	"offset_align":   "an offset in percent is rounded up to a block; give it in bytes for another alignment",
	"write_barrier":  "fsync flushes the namespace after a number of writes",
	"atomic":         "sync=1 has writes be durable when they end",
	"write_hint":     "the namespace has no streams that hints could choose; leave the option out",
	"uid":            noUser, "gid": noUser, "cgroup": noCGroup, "cgroup_weight": noCGroup, "cgroup_nodelete": noCGroup,
	"profile":                 "a job file has the options that a profile stands for",
	"stats":                   "every job is reported; leave the option out, and those that don't matter unread",
	"block_error_percentiles": noMercy,
	"read_iolog_chunked":      noReplay, "replay_align": noReplay, "replay_skip": noReplay,
	"merge_blktrace_file": noReplay, "merge_blktrace_scalars": noReplay, "merge_blktrace_iters": noReplay, "merge-blktrace-only": noReplay,
	"zonecapacity": noZones, "read_beyond_wp": noZones, "ignore_zone_limits": noZones, "zone_reset_threshold": noZones, "zone_reset_frequency": noZones,
	"debug":   "--pcap writes down every packet, and so every command; leave the option out",
	"showcmd": "the JSON has the options of each job; leave the option out",
	"cmdhelp": "nvmeinit bench --help lists the options", "enghelp": "nvmeinit bench --help lists the options",
	"server": noService, "client": noService, "daemonize": noService, "remote-config": noService,
	"idle-prof": "usr_cpu and sys_cpu say how much of a processor nvmeinit takes; leave the option out",
	"trigger":   noTrigger, "trigger-file": noTrigger, "trigger-timeout": noTrigger, "trigger-remote": noTrigger,
	"inflate-log": noFile, "crctest": noSelfTest, "memcpytest": noSelfTest, "cpuclock-test": noSelfTest,
	"write_hist_log": noLog, "log_hist_msec": noLog, "log_prio": noLog,
	"log_alternate_epoch": noEpoch, "log_alternate_epoch_clock_id": noEpoch,
	"log_entries": noFile, "fadvise_hint": noCache, "log_compression": noFile, "log_compression_cpus": noFile, "log_store_compressed": noFile,
	"write_iolog":    "--pcap writes down every packet, and so every command; leave the option out",
	"terse-version":  "-o terse prints version 3; leave the option out",
	"append-terse":   "-o normal,terse prints these lines beside the table",
	"verify_pattern": "verify=crc32c checks data that differ everywhere; leave the option out",
	"verify_fatal":   noChecking, "verify_dump": noChecking, "verify_async": noChecking,
	"verify_state_save": noChecking, "verify_interval": noChecking,
	"latency_run": noTarget,
	"steadystate": noSettling, "steadystate_duration": noSettling, "steadystate_ramp_time": noSettling, "steadystate_check_interval": noSettling, "ss": noSettling, "ss_dur": noSettling, "ss_ramp": noSettling,
	"flow": noFlow, "flow_id": noFlow, "flow_watermark": noFlow, "flow_sleep": noFlow,
	"percentage_sequential": "percentage_random is the share of the others",
	"serialize_overlap":     "with verify writes under way never overlap; leave the option out",
	"fsync_on_close":        "end_fsync=1 flushes when a job ends",
	"filename":              noFabric, "ioengine": noFabric, "thread": noFabric, "invalidate": noFabric,
	"filesize": "size is the length of the range that jobs work on", "disk_util": noFabric, "nrfiles": noFabric, "hipri": noFabric, "fixedbufs": noFabric,
	"filename_format": noFabric, "create_on_open": noFabric, "ioscheduler": noFabric, "pre_read": noFabric, "create_only": noFabric,
	"registerfiles": noFabric, "sqthread_poll": noFabric, "allow_mounted_write": noFabric, "overwrite": noFabric,
	"direct": noCache, "buffered": noCache,
	"cpus_allowed": noPlace, "cpumask": noPlace, "cpus_allowed_policy": noPlace, "numa_cpu_nodes": noPlace, "numa_mem_policy": noPlace,
	"iodepth_low": noBatch, "iodepth_batch_complete": noBatch, "iodepth_batch_complete_min": noBatch,
	"scramble_buffers": "refill_buffers has data that are new each time; leave the option out", "buffer_pattern": noBuffer,
	"dedupe_mode": noBuffer, "dedupe_working_set_percentage": noBuffer, "dedupe_global": noBuffer,
	"clocksource":      "all times are those of one monotonic clock; leave the option out",
	"slat_percentiles": "an operation is submitted at once, so that clat_ns has all of its latency; leave the option out",
	"wait_for":         "stonewall has a section begin when those before it have ended",
	"random_generator": "random offsets need no generator of another kind for large ranges; leave the option out",
	"softrandommap":    "norandommap lets random offsets repeat; leave the option out",
	"include":          "job files can't include others; put the sections into one file",
	"fill_fs":          noFilling,
	"fill_device":      noFilling,
	"verify_only":      "rw=read with verify checks what an earlier run wrote",
	"writefua":         "sync=1 has writes be durable when they end",
	"zonemode":         noZones, "zonesize": noZones, "zonerange": noZones, "zoneskip": noZones, "max_open_zones": noZones, "job_max_open_zones": noZones,
	"rate_ignore_thinktime": "what becomes due in a rest begins when it is over; leave the option out",
	"thinktime_iotime":      "thinktime_blocks says how many operations come between two rests; leave the option out",
	"nice":                  "nice says with which priority nvmeinit runs, as nice -n 5 nvmeinit bench; leave the option out",
	"exec_prerun":           noCommand, "exec_postrun": noCommand,
	"bwavgtime": noLog, "iopsavgtime": noLog,
	"kb_base":             "k is 1024 bytes; leave the option out",
	"unit_base":           "bandwidths are in bytes a second; leave the option out",
	"allrandrepeat":       "randrepeat=0 has each run draw anew; leave the option out",
	"bs_unaligned":        "sizes are used as given; leave the option out",
	"blocksize_unaligned": "sizes are used as given; leave the option out",
	"sync_file_range":     "fsync flushes the namespace after a number of writes",
	"prio":                noPriority, "prioclass": noPriority, "cmdprio": noPriority, "cmdprio_class": noPriority, "cmdprio_percentage": noPriority, "cmdprio_bssplit": noPriority,
	"md_per_io_size": noMetadata, "pi_act": noMetadata, "pi_chk": noMetadata, "apptag": noMetadata, "apptag_mask": noMetadata,
	"continue_on_error": noMercy, "ignore_error": noMercy, "exitall_on_error": noMercy, "error_dump": noMercy,
	"rate_min": noLeast, "ratemin": noLeast, "rate_iops_min": noLeast,
	"read_iolog": noReplay, "replay_no_stall": noReplay, "replay_redirect": noReplay, "replay_scale": noReplay, "replay_time_scale": noReplay,
}

// Foreign says why fio's option of that name doesn't exist here; it returns "" for other names.
func Foreign(name string) string { return foreign[name] }
