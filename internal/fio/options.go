package fio

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Option is an option of a job.
type Option struct {
	Name    string
	Aliases []string // further names that fio has
	Flag    bool     // it needs no value
	Alone   bool     // in a job file it needs none
	Type    string   // of the value, in help
	Choices []string // the values, if there is a fixed set
	Example string   // a value
	Default string   // in help; empty if the usage says it
	Usage   string

	set func(*Job, string) error
}

// Options returns all options of a job, in the order of help.
func Options() []Option { return options }

var options = []Option{
	{
		Name: "rw", Aliases: []string{"readwrite"}, Type: "pattern", Example: "randread", Default: "read",
		Choices: loadgen.Patterns, Usage: english.WordSeries(loadgen.Patterns, "or") +
			"; with a number, as randread:8, one of so many operations goes to a random offset and the others follow the last of their direction; " +
			"with a size, as read:28k, operations are that far apart, and as read:-8k they go back by it",
		set: setPattern,
	},
	{
		Name: "rwmixread", Type: "percent", Example: "70", Default: "50",
		Usage: "share of reads in rw and randrw",
		set:   func(j *Job, v string) error { return number(&j.RWMixRead, v) },
	},
	{
		Name: "rwmixwrite", Type: "percent", Example: "30", Usage: "share of writes in rw and randrw",
		set: func(j *Job, v string) error {
			var n int
			if err := number(&n, v); err != nil {
				return err
			}
			if n > 100 {
				return errors.New("want 0 to 100 percent")
			}
			j.RWMixRead = 100 - n
			return nil
		},
	},
	{
		Name: "bs", Aliases: []string{"blocksize"}, Type: "size[,size][,size]", Example: "4k", Default: "4k",
		Usage: "block size, or sizes of reads, writes and trims",
		set:   setBlockSize,
	},
	{
		Name: "bssplit", Type: "size/percent:...", Example: "4k/70:64k/30",
		Usage: "mix of block sizes, as 4k/70:64k/30; after commas those of writes and of trims",
		set:   setSplit,
	},
	{
		Name: "bsrange", Aliases: []string{"blocksize_range"}, Type: "size-size", Example: "4k-64k",
		Usage: "range of random block sizes, in multiples of the smallest, as 4k-64k; after commas those of writes and of trims",
		set:   setBlockRange,
	},
	{
		Name: "ba", Aliases: []string{"blockalign"}, Type: "size[,size][,size]", Example: "4k",
		Usage: "alignment of random offsets (default the smallest block size)",
		set: func(j *Job, v string) error {
			return each(v, func(op loadgen.Op, v string) error {
				n, err := parseSize(v)
				j.Align[op] = int(n)
				return err
			})
		},
	},
	{
		Name: "iodepth", Type: "number", Example: "32", Default: "1",
		Usage: "operations that each job keeps outstanding",
		set:   func(j *Job, v string) error { return number(&j.IODepth, v) },
	},
	{
		Name: "numjobs", Type: "number", Example: "4", Default: "1",
		Usage: "number of concurrent clones of the job, each with an I/O queue of its own as far as there are enough",
		set:   func(j *Job, v string) error { return number(&j.NumJobs, v) },
	},
	{
		Name: "offset", Aliases: []string{"fileoffset"}, Type: "size or percent", Example: "1g",
		Usage: "start of the range, also as a share of the namespace, as 50% (default 0)",
		set:   func(j *Job, v string) error { return share(&j.Offset, &j.OffsetPercent, v, 0, 99) },
	},
	{
		Name: "offset_increment", Type: "size or percent", Example: "1g",
		Usage: "how far each clone of numjobs begins behind the one before it, in bytes or as offset is; otherwise all work on one range",
		set:   func(j *Job, v string) error { return share(&j.step, &j.stepBy, v, 1, 99) },
	},
	{
		Name: "size", Type: "size or percent", Example: "1g",
		Usage: "length of the range that each job works on, also as a share of the namespace, as 20% (default up to the end)",
		set:   func(j *Job, v string) error { return share(&j.Size, &j.SizePercent, v, 1, 100) },
	},
	{
		Name: "runtime", Aliases: []string{"timeout"}, Type: "time", Example: "30s",
		Usage: "time to run, in seconds or as 500ms, 2m; with a size and without time_based, at most that long (default once through the range)",
		set:   func(j *Job, v string) (err error) { j.Runtime, err = ParseTime(v); return err },
	},
	{
		Name: "time_based", Flag: true, Usage: "run for the whole runtime, repeating the range as needed",
		set: func(j *Job, v string) error { return boolean(&j.TimeBased, v) },
	},
	{
		Name: "io_size", Aliases: []string{"io_limit"}, Type: "size or percent", Example: "1g",
		Usage: "bytes that each job transfers, less or more than its size, also as a share of the size, as 50% (default the size)",
		set:   func(j *Job, v string) error { return share(&j.IOSize, &j.IOPercent, v, 1, 100) },
	},
	{
		Name: "loops", Type: "number", Example: "3", Usage: "how often each job goes through its size, or transfers its io_size (default once)",
		set: func(j *Job, v string) error { return number(&j.Loops, v) },
	},
	{
		Name: "number_ios", Type: "number", Example: "1000", Usage: "operations after which each job, or each of its loops, ends at the latest, not counting those within a ramp_time that it outlasts; ignored with time_based",
		set: func(j *Job, v string) (err error) { j.NumberIOs, err = parseCount(v); return err },
	},
	{
		Name: "ramp_time", Type: "time", Example: "2s", Usage: "time to run before measuring begins; a job that ends within it is measured from its start",
		set: func(j *Job, v string) (err error) { j.RampTime, err = ParseTime(v); return err },
	},
	{
		Name: "startdelay", Type: "time", Example: "2s", Usage: "time before each job begins; its ramp_time and runtime follow",
		set: func(j *Job, v string) (err error) { j.Delay, err = ParseTime(v); return err },
	},
	{
		Name: "thinktime", Type: "time", Example: "10ms",
		Usage: "how long each job pauses between operations, in microseconds or as 10ms, counted from when all outstanding ones have ended",
		set:   func(j *Job, v string) (err error) { j.ThinkTime, err = parseMicros(v); return err },
	},
	{
		Name: "thinktime_blocks", Type: "number", Example: "4", Usage: "operations between two such pauses (default 1)",
		set: func(j *Job, v string) error { return number(&j.ThinkIOs, v) },
	},
	{
		Name: "thinktime_blocks_type", Type: english.WordSeries(thinkTypes, "or"), Choices: thinkTypes, Example: thinkIssued, Default: "complete",
		Usage: "count these operations when they end or, with issue, when they begin",
		set: func(j *Job, v string) error {
			if !slices.Contains(thinkTypes, v) {
				return fmt.Errorf("want %s", english.WordSeries(thinkTypes, "or"))
			}
			j.ThinkIssued = v == thinkIssued
			return nil
		},
	},
	{
		Name: "thinktime_spin", Type: "time", Example: "2ms",
		Usage: "how long each such pause occupies a processor first, in microseconds or as 2ms; a shorter pause takes that long",
		set:   func(j *Job, v string) (err error) { j.ThinkSpin, err = parseMicros(v); return err },
	},
	{
		Name: "latency_target", Type: "time", Example: "500us",
		Usage: "find the largest depth, up to iodepth, at which operations take no longer than this, in microseconds or as 2ms; the results are from a last latency_window at that depth",
		set:   func(j *Job, v string) (err error) { j.LatencyTarget, err = parseMicros(v); return err },
	},
	{
		Name: "latency_window", Type: "time", Example: "1s", Usage: "how long a latency_target is tried at each depth, in microseconds or as 1s",
		set: func(j *Job, v string) (err error) { j.LatencyWindow, err = parseMicros(v); return err },
	},
	{
		Name: "latency_percentile", Type: "percent", Example: "99.9", Default: "100",
		Usage: "share of the operations that must meet the latency_target",
		set:   setLatencyShare,
	},
	{
		Name: "max_latency", Type: "time[,time][,time]", Example: "50ms",
		Usage: "end the run with an error when an operation takes longer than this, in microseconds or as 50ms; after commas those of writes and of trims",
		set: func(j *Job, v string) error {
			return each(v, func(op loadgen.Op, v string) (err error) { j.MaxLatency[op], err = parseMicros(v); return err })
		},
	},
	{
		Name: "rate", Type: "size[,size][,size]", Example: "100m",
		Usage: "bytes a second of each job, in an open loop: latencies count from when an operation was due; after commas those of writes and of trims, as ,1m for writes alone",
		set: func(j *Job, v string) error {
			return each(v, func(op loadgen.Op, v string) (err error) { j.Rate[op], err = parseSize(v); return err })
		},
	},
	{
		Name: "rate_iops", Type: "number[,number][,number]", Example: "5000",
		Usage: "rate in operations a second",
		set: func(j *Job, v string) error {
			return each(v, func(op loadgen.Op, v string) error {
				n, err := parseCount(v)
				j.RateIOPS[op] = int(n)
				return err
			})
		},
	},
	{
		Name: "rate_process", Type: english.WordSeries(processes, "or"), Choices: processes, Example: "poisson", Default: "linear",
		Usage: "how operations with a rate are spaced: evenly, or at random",
		set:   setProcess,
	},
	{
		Name: "random_distribution", Type: "distribution", Example: "zipf:1.1", Default: "random",
		Usage: "distribution of random offsets: random, zipf:THETA, pareto:SHARE (pareto:0.2 puts 80% of them on 20% of the blocks), " +
			"normal:PERCENT, or by zones, zoned:60/10:40/90 (60% of them to the first 10% of the range) or zoned_abs:60/1g:40/9g",
		set: setDistribution,
	},
	{
		Name: "percentage_random", Type: "percent[,percent][,percent]", Example: "80,0", Default: "100",
		Usage: "share of the operations of a random pattern that go to random offsets; the others continue where the last one of their direction ended",
		set: func(j *Job, v string) error {
			return each(v, func(op loadgen.Op, v string) error {
				n, err := parseCount(v)
				if err == nil && n > 100 {
					err = errors.New("want 0 to 100 percent")
				}
				j.Sequential[op] = 100 - int(n)
				return err
			})
		},
	},
	{
		Name: "norandommap", Flag: true, Usage: "let random offsets repeat before every block has been covered",
		set: func(j *Job, v string) error { return boolean(&j.NoRandomMap, v) },
	},
	{
		Name: "randrepeat", Type: "0 or 1", Example: "0", Default: "1", Usage: "0: choose a random randseed for each run",
		set: setRandRepeat,
	},
	{
		Name: "randseed", Type: "number", Example: "1", Default: "1", Usage: "seed of offsets and data",
		set: func(j *Job, v string) (err error) {
			j.Seed, err = parseSeed(v)
			j.seeded = true
			return err
		},
	},
	{
		Name: "refill_buffers", Flag: true,
		Usage: "write new data each time, for targets that deduplicate; otherwise a job writes as many different buffers as its depth",
		set:   func(j *Job, v string) error { return boolean(&j.Refill, v) },
	},
	{
		Name: "zero_buffers", Flag: true, Usage: "write zeroes in place of random data",
		set: func(j *Job, v string) error { return boolean(&j.Zeroes, v) },
	},
	{
		Name: "buffer_compress_percentage", Type: "percent", Example: "50", Default: "0",
		Usage: "share of each buffer_compress_chunk of the data written that is zeroes, so that a target can compress it; refill_buffers is implied",
		set:   func(j *Job, v string) error { return number(&j.Compress, v) },
	},
	{
		Name: "buffer_compress_chunk", Type: "size", Example: "4k", Default: "512", Usage: "bytes that are random at the beginning and zeroes at the end, from 512 on, or 0 for all of an operation",
		set: func(j *Job, v string) error {
			n, err := parseSize(v)
			j.CompressChunk = int(n)
			return err
		},
	},
	{
		Name: "dedupe_percentage", Type: "percent", Example: "30", Default: "0",
		Usage: "share of the writes that repeat the data of an earlier one; refill_buffers is implied",
		set:   func(j *Job, v string) error { return number(&j.Dedupe, v) },
	},
	{
		Name: "sync", Type: "0 or 1", Example: "1", Default: "0", Usage: "1: each write is durable when it ends (FUA)",
		set: setSync,
	},
	{
		Name: "fsync", Type: "number", Example: "1",
		Usage: "flush the namespace after this number of writes of a job; at a depth above 1 without waiting for outstanding ones (default never)",
		set:   func(j *Job, v string) error { return number(&j.Fsync, v) },
	},
	{
		Name: "fdatasync", Type: "number", Example: "1", Usage: "the same as fsync, counted apart: where both are due, one flush is sent",
		set: func(j *Job, v string) error { return number(&j.Fdatasync, v) },
	},
	{
		Name: "end_fsync", Alone: true, Type: "0 or 1", Example: "1", Default: "0",
		Usage: "1: flush the namespace when the other operations of a job that writes have ended; the job takes until then",
		set:   func(j *Job, v string) error { return boolean(&j.EndFsync, v) },
	},
	{
		Name: "verify", Type: "crc32c", Choices: []string{"crc32c"}, Example: "crc32c",
		Usage: "stamp what is written with a CRC-32C, read it back and check it at the end; check what is read; " +
			"takes 4 bytes of memory for each block that is written, so 1 GiB for 1 TiB in blocks of 4k",
		set: setVerify,
	},
	{
		Name: "do_verify", Alone: true, Type: "0 or 1", Example: "0", Default: "1",
		Usage: "0: don't read back at the end; a later run with rw=read and verify can check what was written",
		set:   func(j *Job, v string) error { return unless(&j.Unread, v) },
	},
	{
		Name: "verify_backlog", Type: "number", Example: "1024",
		Usage: "read back and check what was written whenever so many writes of a job are unread, too (default only at the end)",
		set:   func(j *Job, v string) (err error) { j.Backlog, err = parseCount(v); return err },
	},
	{
		Name: "verify_backlog_batch", Type: "number", Example: "256", Usage: "how many of the writes are read back whenever verify_backlog of them are unread, the oldest first (default as many)",
		set: func(j *Job, v string) (err error) { j.BacklogBatch, err = parseCount(v); return err },
	},
	{
		Name: "percentile_list", Type: "list", Example: "50:99:99.9", Usage: "latency percentiles to report, separated by colons",
		set: setPercentiles,
	},
	{
		Name: "lat_percentiles", Alone: true, Type: "0 or 1", Example: "1", Default: "0",
		Usage: "1: have the JSON report percentiles of lat_ns, which are those of clat_ns",
		set:   func(j *Job, v string) error { return boolean(&j.lat, v) },
	},
	{
		Name: "clat_percentiles", Alone: true, Type: "0 or 1", Example: "0", Default: "1",
		Usage: "0: have the JSON report none of clat_ns",
		set:   func(j *Job, v string) error { return unless(&j.noClat, v) },
	},
	{
		Name: "write_bw_log", Alone: true, Type: "prefix", Example: "mine",
		Usage: "write the bandwidth of each interval of log_avg_msec, or of each operation, in KiB a second, to prefix_bw.N.log for each job N, as fio does",
		set:   setLog(bwLog),
	},
	{
		Name: "write_iops_log", Alone: true, Type: "prefix", Example: "mine",
		Usage: "the same for operations a second, to prefix_iops.N.log",
		set:   setLog(iopsLog),
	},
	{
		Name: "write_lat_log", Alone: true, Type: "prefix", Example: "mine",
		Usage: "the same for average latencies, in nanoseconds, to prefix_lat.N.log and prefix_clat.N.log",
		set:   setLog(latLog),
	},
	{
		Name: "log_avg_msec", Type: "milliseconds", Example: "1000", Usage: "length of the intervals of logs (default a line for each operation)",
		set: setLogInterval,
	},
	{
		Name: "log_offset", Alone: true, Type: "0 or 1", Example: "1", Default: "0",
		Usage: "1: add the offset of each operation to the lines of logs",
		set:   func(j *Job, v string) error { return boolean(&j.Logs.offsets, v) },
	},
	{
		Name: "log_max_value", Alone: true, Type: "0 or 1", Example: "1", Default: "0",
		Usage: "1: write the longest latency of each interval to the logs of write_lat_log, and not the average",
		set:   func(j *Job, v string) error { return boolean(&j.Logs.longest, v) },
	},
	{
		Name: "log_unix_epoch", Alone: true, Type: "0 or 1", Example: "1", Default: "0",
		Usage: "1: times in logs are milliseconds since 1970, and not since measuring began",
		set:   func(j *Job, v string) error { return boolean(&j.Logs.unix, v) },
	},
	{
		Name: "per_job_logs", Type: "0 or 1", Example: "0", Default: "1",
		Usage: "0: write the logs of all jobs with the same prefix to one file without N, one job after another",
		set: func(j *Job, v string) error {
			var apart bool
			err := boolean(&apart, v)
			j.Logs.together = !apart
			return err
		},
	},
	{
		Name: "group_reporting", Flag: true, Usage: "report the clones of numjobs together",
		set: func(j *Job, v string) error { return boolean(&j.GroupReporting, v) },
	},
	{
		Name: "unified_rw_reporting", Type: english.WordSeries(unifieds[:], "or"), Choices: unifieds[:], Example: "both", Default: "none",
		Usage: "report reads, writes and trims together, in place of each or, with both, in addition",
		set:   setUnified,
	},
	{
		Name: "stonewall", Aliases: []string{"wait_for_previous"}, Flag: true, Usage: "begin when the jobs before this one have ended",
		set: func(j *Job, v string) error { return boolean(&j.Stonewall, v) },
	},
	{
		Name: "exitall", Flag: true, Usage: "when the job or one of its clones ends, others end too",
		set: func(j *Job, v string) error { return boolean(&j.exitAll, v) },
	},
	{
		Name: "exit_what", Type: english.WordSeries(exitWhats, "or"), Choices: exitWhats, Example: "all", Default: string(exitGroup),
		Usage: "which those are: those of its group, all that run, or also those behind a stonewall",
		set: func(j *Job, v string) error {
			if !slices.Contains(exitWhats, v) {
				return fmt.Errorf("want %s", english.WordSeries(exitWhats, "or"))
			}
			j.exits = exitWhat(v)
			return nil
		},
	},
	{
		Name: "new_group", Flag: true, Usage: "begin a new group, as groupid and bw_agg of the JSON count them and exitall ends them",
		set: func(j *Job, v string) error { return boolean(&j.NewGroup, v) },
	},
	{
		Name: "name", Type: "name", Example: "mine", Default: "bench", Usage: "name of the job in the report; each further one begins another job, with the options before the first and those behind it",
		set: func(j *Job, v string) error { j.Name = v; return nil },
	},
	{
		Name: "description", Type: "text", Example: "after the upgrade", Usage: "what the report says of the job",
		set: func(j *Job, v string) error { j.Description = v; return nil },
	},
}

// Names returns the names of all options, including their aliases.
func Names() (all []string) {
	for i := range options {
		all = append(append(all, options[i].Name), options[i].Aliases...)
	}
	return all
}

func find(name string) *Option {
	for i := range options {
		if o := &options[i]; o.Name == name || slices.Contains(o.Aliases, name) {
			return o
		}
	}
	return nil
}

// share parses a number of bytes, or a percentage of the namespace between bounds.
func share(bytes *int64, percent *int, v string, least, most int) error {
	if p, ok := cutPercent(v); ok {
		n, err := strconv.Atoi(p)
		if err != nil || n < least || n > most {
			return fmt.Errorf("want %d%% to %d%%", least, most)
		}
		*bytes, *percent = 0, n
		return nil
	}
	n, err := parseSize(v)
	*bytes, *percent = n, 0
	return err
}

// setPattern parses a pattern, and what fio has behind a colon: for a random one a number of operations, and for another
// a size, which may be below 0.
func setPattern(j *Job, v string) error {
	pattern, more, given := strings.Cut(v, ":")
	j.RW, j.RunLength, j.Skip = pattern, 0, 0
	if !given {
		return nil
	}
	if strings.HasPrefix(pattern, "rand") {
		err := number(&j.RunLength, more)
		if err == nil && j.RunLength < 1 {
			err = errors.New("want at least 1 operation, as randread:8")
		}
		return err
	}
	size, back := strings.CutPrefix(more, "-")
	n, err := parseSize(size)
	if j.Skip = n; back {
		j.Skip = -n
	}
	return err
}

// poisson is the rate_process for operations that come at random times.
const poisson = "poisson"

// thinkIssued is the thinktime_blocks_type that counts operations when they begin.
const thinkIssued = "issue"

var thinkTypes = []string{"complete", thinkIssued}

var processes = []string{"linear", poisson}

func setProcess(j *Job, v string) error {
	if !slices.Contains(processes, v) {
		return fmt.Errorf("want %s", english.WordSeries(processes, "or"))
	}
	j.Poisson = v == poisson
	return nil
}

// unifieds are fio's names of how directions are reported, which it also takes as numbers.
var unifieds = [...]string{Apart: "none", Mixed: "mixed", Both: "both"}

func setUnified(j *Job, v string) error {
	for u, name := range unifieds {
		if v == name || v == strconv.Itoa(u) {
			j.Unified = Unified(u)
			return nil
		}
	}
	return fmt.Errorf("want %s", english.WordSeries(unifieds[:], "or"))
}

// setSync parses fio's kinds of synchronous files, which make no difference to a namespace.
func setSync(j *Job, v string) error {
	switch v {
	case "0", "none":
		j.Sync = false
	case "1", "sync", "dsync":
		j.Sync = true
	default:
		return errors.New("want 0 or 1")
	}
	return nil
}

func setLatencyShare(j *Job, v string) error {
	share, err := strconv.ParseFloat(v, 64)
	if err != nil || !(share > 0 && share <= 100) {
		return errors.New("want more than 0 and at most 100 percent, as 99.9")
	}
	j.LatencyPercentile = share
	return nil
}

// setRandRepeat chooses a seed, unless the job has been given one: as in fio, that counts wherever it is.
func setRandRepeat(j *Job, v string) error {
	var repeat bool
	err := boolean(&repeat, v)
	switch {
	case err != nil || j.seeded:
	case repeat:
		j.Seed = defaultSeed
	default:
		j.Seed = rand.Uint64()
	}
	return err
}

func setVerify(j *Job, v string) error {
	switch v {
	case "crc32c", "crc32c-intel":
		j.Verify = true
	case "0", "none":
		j.Verify = false
	default:
		return fmt.Errorf("want crc32c")
	}
	return nil
}
