package fio

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Job is a section of a job file, or what a command line describes.
type Job struct {
	loadgen.Spec
	Heading        string    // of its section of the job file; its Name may be another
	Description    string    // for whoever reads the report
	GroupReporting bool      // clones are reported together
	Stonewall      bool      // it begins when all jobs before it have ended
	NewGroup       bool      // it begins a new group of the report, as after a stonewall
	Unified        Unified   // how directions are reported
	Percentiles    []float64 // to report; nil for fio's
	Logs           Logs

	lat     bool                       // the JSON has percentiles of lat_ns
	noClat  bool                       // and none of clat_ns
	sized   [loadgen.Directions]sizing // which option set BS
	step    int64                      // bytes from the offset of a clone to that of the next
	stepBy  int                        // the same in percent of the namespace
	seeded  bool                       // Seed was given by randseed
	exitAll bool                       // when a clone ends, others end too
	exits   exitWhat                   // which
	given   []setting                  // in order: one that is repeated may add to what it said before
}

// Unified says how the directions of a job are reported.
type Unified int

// Values of Unified.
const (
	Apart Unified = iota // each by itself
	Mixed                // all together
	Both                 // both ways
)

// setting is an option as it was given.
type setting struct{ name, value string }

// defaultBlock is fio's block size.
const defaultBlock = 4096

// defaultChunk is fio's buffer_compress_chunk.
const defaultChunk = 512

// defaultSeed is the randseed of a job that is given none.
const defaultSeed = 1

// NewJob returns a job with fio's defaults.
func NewJob(name string) *Job {
	j := &Job{Spec: loadgen.Spec{Name: name, RW: "read", RWMixRead: 50, IODepth: 1, NumJobs: 1, Seed: defaultSeed, CompressChunk: defaultChunk}}
	for op := range j.BS {
		j.BS[op] = loadgen.Fixed(defaultBlock)
	}
	return j
}

// Clone returns a copy, whose options can be set without those of j. Each option replaces its list as a whole.
func (j *Job) Clone() *Job {
	c := *j
	c.given = slices.Clone(j.given)
	return &c
}

// Section returns another job, whose options are those of j until it is given others. Those of j don't count as given.
func (j *Job) Section(name string) *Job {
	c := j.Clone()
	c.Name, c.Heading, c.given = name, name, nil
	return c
}

// Set sets an option as it is written; an empty value means an option without one. The error for an unknown option
// is an *UnknownOptionError.
func (j *Job) Set(name, value string) error {
	o := find(name)
	if o == nil {
		return &UnknownOptionError{Option: name, Remedy: foreign[name]}
	}
	if value == "" && !o.Flag && !o.Alone {
		return fmt.Errorf("%s: want a value, as %s=%s", name, name, o.Example)
	}
	if err := o.set(j, value); err != nil {
		return fmt.Errorf("%s=%s: %w", name, value, err)
	}
	if o.Flag && (value == "" || value == "true") {
		value = "1" // which means the same; fio's JSON lacks an option without a value
	}
	j.given = append(j.given, setting{o.Name, value})
	return nil
}

// Given returns the options that were set, by name, as they were last written.
func (j *Job) Given() map[string]string {
	m := map[string]string{}
	for _, s := range j.given {
		m[s.name] = s.value
	}
	return m
}

// UnknownOptionError reports an option of fio that doesn't exist here, or one that doesn't exist at all.
type UnknownOptionError struct {
	Option string
	Remedy string   // what to do instead, if known
	Others []string // in a job file: further unknown options, each with its line
}

func (e *UnknownOptionError) Error() string {
	text := e.Option + ": " + e.Remedy
	if e.Remedy == "" {
		text = fmt.Sprintf("there is no option %q; nvmeinit bench --help lists them", e.Option)
	}
	if len(e.Others) == 0 {
		return text
	}
	return text + "; nor are there " + strings.Join(e.Others, ", ")
}

// Apply sets the options that were set on others, one after another, overriding those of j.
func (j *Job) Apply(others ...*Job) error {
	j.sized = [loadgen.Directions]sizing{} // even a bs overrides a bssplit of j
	for _, o := range others {
		for _, s := range o.given {
			if err := j.Set(s.name, s.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// exitWhat is what exitall ends.
type exitWhat string

// Kinds of exitWhat.
const (
	exitGroup exitWhat = "group"
	exitPhase exitWhat = "stonewall"
	exitAll   exitWhat = "all"
)

var exitWhats = []string{string(exitGroup), string(exitPhase), string(exitAll)}

// Phases splits jobs at stonewalls: the jobs of a phase run in parallel, and phases one after another. Those behind a
// phase whose end is to end everything are left out.
func Phases(jobs []*Job) [][]*Job {
	var phases [][]*Job
	over := false
	for _, j := range jobs {
		if len(phases) == 0 || j.Stonewall {
			if over {
				break
			}
			phases = append(phases, nil)
		}
		last := len(phases) - 1
		phases[last] = append(phases[last], j)
		over = over || j.exitAll && j.exits == exitAll
	}
	return phases
}

// Specs returns the specs of the jobs of a phase for the load generator. Clones with offsets of their own have one each.
func Specs(jobs []*Job) []loadgen.Spec {
	var specs []loadgen.Spec
	group := 0
	for _, j := range jobs {
		s := j.Spec
		s.LogEach = j.logsEach()
		if j.NewGroup {
			group++
		}
		switch s.Group = group; {
		case j.exitAll && (j.exits == "" || j.exits == exitGroup):
			s.Exit = loadgen.ExitGroup
		case j.exitAll:
			s.Exit = loadgen.ExitRun
		}
		if j.step == 0 && j.stepBy == 0 {
			specs = append(specs, s)
			continue
		}
		s.NumJobs = 1
		for range j.NumJobs {
			specs = append(specs, s)
			s.Offset += j.step
			s.OffsetPercent += j.stepBy
			s.Number++
		}
	}
	return specs
}

// Check reports which option is wrong whatever the namespace.
func (j *Job) Check() error {
	if j.step > 0 && j.OffsetPercent > 0 || j.stepBy > 0 && j.Offset > 0 {
		return errors.New("offset_increment and offset: want both in bytes, or both in percent")
	}
	if n := int64(j.NumJobs); n > 0 && j.step > (math.MaxInt64-j.Offset)/n {
		return fmt.Errorf("offset_increment=%d: no namespace has room for %d of those", j.step, n)
	}
	return j.Spec.Check()
}

// Fit reports which option is wrong for a namespace of that size.
func (j *Job) Fit(size int64, blockSize int) error {
	specs := Specs([]*Job{j}) // one for each clone, with offset_increment
	for i := range specs {
		if err := specs[i].Validate(size, blockSize); err != nil {
			return err
		}
	}
	return nil
}
