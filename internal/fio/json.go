package fio

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Report is what fio prints with --output-format=json, with fio's names. Fields that have no meaning here are 0.
type Report struct {
	Version   string            `json:"fio version"`
	Timestamp int64             `json:"timestamp"` // s; like the next two, when the last job ended
	Millis    int64             `json:"timestamp_ms"`
	Time      string            `json:"time"`
	Global    map[string]string `json:"global options,omitempty"`
	Jobs      []JobReport       `json:"jobs"`
	Warnings  []string          `json:"nvmeinit_warnings,omitempty"` // ours: why figures may not mean what they seem to
	Compare   any               `json:"nvmeinit_compare,omitempty"`  // ours: ratios of runs over several paths
	Paths     any               `json:"nvmeinit_paths,omitempty"`    // ours: what each path of a multipath run did

	began  time.Time
	groups int // that are complete
}

// JobReport describes one job, or the group of a job's clones.
type JobReport struct {
	Name     string            `json:"jobname"`
	Desc     string            `json:"desc,omitempty"`
	GroupID  int               `json:"groupid"`
	Error    int               `json:"error"` // errno
	ETA      int64             `json:"eta"`
	Elapsed  int64             `json:"elapsed"` // s, for all jobs, in sequence or in parallel
	Options  map[string]string `json:"job options"`
	Read     Side              `json:"read,omitzero"`
	Write    Side              `json:"write,omitzero"`
	Trim     Side              `json:"trim,omitzero"`
	Sync     syncSide          `json:"sync,omitzero"`
	Mixed    Side              `json:"mixed,omitzero"` // all of them together
	Runtime  int64             `json:"job_runtime"`    // ms, sum over all clones
	User     float64           `json:"usr_cpu"`        // percent of Runtime
	System   float64           `json:"sys_cpu"`
	Switches int64             `json:"ctx"`
	MajFlt   int64             `json:"majf"`
	MinFlt   int64             `json:"minf"`
	Level    levels            `json:"iodepth_level"` // percent of operations
	Submit   levels            `json:"iodepth_submit"`
	Complete levels            `json:"iodepth_complete"`
	Nanos    levels            `json:"latency_ns"` // percent of operations that took less
	Micros   levels            `json:"latency_us"`
	Millis   levels            `json:"latency_ms"`
	LatDepth int               `json:"latency_depth"`
	Target   int64             `json:"latency_target"`
	LatShare float64           `json:"latency_percentile"`
	Window   int64             `json:"latency_window"`
	Path     string            `json:"nvmeinit_path,omitempty"`           // ours: which of several paths it ran over
	Repeat   int               `json:"nvmeinit_repeat,omitempty"`         // ours: number of the repeat, from 1
	Verified int64             `json:"nvmeinit_verified_bytes,omitempty"` // ours: bytes that --verify has checked
	Late     uint64            `json:"nvmeinit_unstarted_ios,omitempty"`  // ours: due by a rate and never begun

	percentiles []float64 // of latencies; nil if none are to be reported
	unified     Unified
}

// Side is one direction of a job.
type Side struct {
	IOBytes  uint64  `json:"io_bytes"`
	IOKBytes uint64  `json:"io_kbytes"`
	BWBytes  uint64  `json:"bw_bytes"`
	BW       uint64  `json:"bw"` // KiB/s
	IOPS     float64 `json:"iops"`
	Runtime  int64   `json:"runtime"` // ms
	TotalIOs uint64  `json:"total_ios"`
	ShortIOs uint64  `json:"short_ios"`
	DropIOs  uint64  `json:"drop_ios"`
	SLat     Latency `json:"slat_ns"`
	CLat     Latency `json:"clat_ns"`
	Lat      Latency `json:"lat_ns"`

	// Statistics of the samples during the run; bandwidth in KiB/s.
	BWMin       uint64  `json:"bw_min"`
	BWMax       uint64  `json:"bw_max"`
	BWAgg       float64 `json:"bw_agg"`
	BWMean      float64 `json:"bw_mean"`
	BWDev       float64 `json:"bw_dev"`
	BWSamples   int     `json:"bw_samples"`
	IOPSMin     uint64  `json:"iops_min"`
	IOPSMax     uint64  `json:"iops_max"`
	IOPSMean    float64 `json:"iops_mean"`
	IOPSStdDev  float64 `json:"iops_stddev"`
	IOPSSamples int     `json:"iops_samples"`

	hidden bool // the job isn't reported in this way
}

// IsZero reports whether the side isn't among the members of the JSON.
func (s *Side) IsZero() bool { return s.hidden }

// Latency holds figures of latencies in nanoseconds.
type Latency struct {
	Min         int64   `json:"min"`
	Max         int64   `json:"max"`
	Mean        float64 `json:"mean"`
	StdDev      float64 `json:"stddev"`
	N           uint64  `json:"N"`
	Percentiles levels  `json:"percentile,omitempty"`
	Bins        levels  `json:"bins,omitempty"` // json+: number of operations by latency
}

type syncSide struct {
	TotalIOs uint64  `json:"total_ios"`
	Lat      Latency `json:"lat_ns"`

	hidden bool
}

// IsZero is that of Side.
func (s *syncSide) IsZero() bool { return s.hidden }

// levels is a JSON object whose members keep their order.
type levels []level

type level struct {
	name  string
	value float64
}

// MarshalJSON writes the members in order.
func (l levels) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range l {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", m.name, strconv.FormatFloat(m.value, 'f', -1, 64))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// NewReport returns an empty report of the given program, whose first job begins at that time.
func NewReport(program string, began time.Time, global map[string]string) *Report {
	return &Report{Version: program, Global: global, Jobs: []JobReport{}, began: began}
}

// With returns a copy to which results are added as Add does.
func (r *Report) With(jobs []*Job, res *loadgen.Result, bins bool) *Report {
	c := *r
	c.Jobs = slices.Clone(r.Jobs)
	c.Add(jobs, res, bins)
	return &c
}

// End records when the last job ended.
func (r *Report) End(at time.Time) {
	r.Timestamp, r.Millis, r.Time = at.Unix(), at.UnixMilli(), at.Format(time.ANSIC)
	for i := range r.Jobs {
		r.Jobs[i].Elapsed = int64(math.Ceil(at.Sub(r.began).Seconds()))
	}
}

// Add adds the results of one run: what each of its jobs measured, or its clones together if the job says so. With
// bins (json+) every recorded latency is included. Each run is a group, or several where a job begins one.
func (r *Report) Add(jobs []*Job, res *loadgen.Result, bins bool) {
	all, first := Groups(jobs, res), len(r.Jobs)
	for i := range all {
		g := &all[i]
		if i > 0 && g.Job.NewGroup && g.Job != all[i-1].Job {
			r.endGroup(first)
			first = len(r.Jobs)
		}
		r.Jobs = append(r.Jobs, jobReport(r.groups, g, bins))
	}
	r.endGroup(first)
}

// endGroup completes the group of the jobs from the given one on.
func (r *Report) endGroup(first int) {
	r.groups++
	aggregate(r.Jobs[first:], func(j *JobReport) *Side { return &j.Read })
	aggregate(r.Jobs[first:], func(j *JobReport) *Side { return &j.Write })
	aggregate(r.Jobs[first:], func(j *JobReport) *Side { return &j.Trim })
	aggregate(r.Jobs[first:], func(j *JobReport) *Side { return &j.Mixed })
}

// aggregate sets, for each of the jobs of a group, its percentage of the group's bandwidth, which as in fio is what all
// of them moved in the time of the one that took longest.
func aggregate(jobs []JobReport, side func(*JobReport) *Side) {
	bytes, longest := uint64(0), int64(1)
	for i := range jobs {
		s := side(&jobs[i])
		bytes += s.IOBytes
		longest = max(longest, s.Runtime)
	}
	all := float64(bytes) / 1024 / float64(longest) * 1000
	for i := range jobs {
		if s := side(&jobs[i]); all > 0 {
			s.BWAgg = min(100*s.BWMean/all, 100)
		}
	}
}

// Reported is what is shown as one job.
type Reported struct {
	Job    *Job
	Clones int
	loadgen.JobResult
	Runtime time.Duration // sum over all clones
}

// Groups returns the results as they are shown: by clone, or by job if it reports as a group.
func Groups(jobs []*Job, res *loadgen.Result) []Reported {
	var all []Reported
	rest := res.Jobs
	for _, j := range jobs {
		clones := rest[:j.NumJobs]
		rest = rest[j.NumJobs:]
		if j.GroupReporting {
			g := Reported{Job: j, Clones: len(clones), JobResult: loadgen.Group(clones)}
			for i := range clones {
				g.Runtime += clones[i].Duration
			}
			all = append(all, g)
			continue
		}
		for i := range clones {
			all = append(all, Reported{Job: j, Clones: 1, JobResult: clones[i], Runtime: clones[i].Duration})
			all[len(all)-1].Clone = i // also where each has a spec of its own
		}
	}
	return all
}

// errno returns the error number that fio reports for a job: EILSEQ for data that is not what was written, ETIMEDOUT
// for an operation that took longer than max_latency, and EIO for any error of the device.
func errno(err error) int {
	var differ *loadgen.VerifyError
	var late *loadgen.LatencyError
	switch {
	case errors.As(err, &differ):
		return int(unix.EILSEQ)
	case errors.As(err, &late):
		return int(unix.ETIMEDOUT)
	}
	return int(unix.EIO)
}

func jobReport(group int, g *Reported, bins bool) JobReport {
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / max(g.Runtime.Seconds(), 1e-9) }
	j := JobReport{
		Name: g.Job.Name, Desc: g.Job.Description, GroupID: group, ETA: 0, Options: g.Job.Given(),
		Read: side(g, loadgen.Read, bins), Write: side(g, loadgen.Write, bins), Trim: side(g, loadgen.Trim, bins), Sync: syncs(g, bins),
		Runtime: g.Runtime.Milliseconds(), User: percent(g.User), System: percent(g.System),
		Level:    depthLevels(g.Depths),
		Submit:   spread(nil, "0", "4", "8", "16", "32", "64", ">=64"),
		Complete: spread(nil, "0", "4", "8", "16", "32", "64", ">=64"),
		LatDepth: latencyDepth(g), LatShare: cmp.Or(g.Job.LatencyPercentile, 100),
		Target: g.Job.LatencyTarget.Nanoseconds(), Window: g.Job.LatencyWindow.Microseconds(),
		Verified: g.Verified, Late: g.Unstarted, unified: g.Job.Unified,
	}
	j.Mixed.hidden = true
	switch g.Job.Unified {
	case Mixed:
		j.Mixed = mixed(g, bins)
		j.Read.hidden, j.Write.hidden, j.Trim.hidden, j.Sync.hidden = true, true, true, true
	case Both:
		j.Mixed = mixed(g, bins)
	}
	if !g.Job.noClat || g.Job.lat {
		j.percentiles = g.Job.percentiles()
	}
	// Operations are submitted and completed one by one, as far as the generator sees.
	all := g.Total()
	if all.IOs > 0 {
		j.Submit[1].value, j.Complete[1].value = 100, 100
	}
	j.Nanos, j.Micros, j.Millis = latencyShares(all)
	if g.Errors > 0 {
		j.Error = errno(g.Err)
	}
	return j
}

// latencyDepth returns the depth that a job found if it was to find one, or else the one that it was given.
func latencyDepth(g *Reported) int {
	if g.Job.LatencyTarget > 0 {
		return g.SoughtDepth
	}
	return g.Job.IODepth
}

func side(g *Reported, op loadgen.Op, bins bool) Side {
	m := &g.Ops[op]
	if m.IOs == 0 {
		return Side{}
	}
	lat := latency(&m.Latency)
	s := Side{
		IOBytes: m.Bytes, IOKBytes: m.Bytes >> 10,
		BWBytes: uint64(g.Bandwidth(m)), BW: uint64(g.Bandwidth(m)) >> 10,
		IOPS: g.IOPS(m), Runtime: max(g.Duration.Milliseconds(), 1), TotalIOs: m.IOs,
		Lat: lat, CLat: lat,
	}
	if !g.Job.noClat {
		s.CLat.spell(g, &m.Latency, bins)
	}
	if g.Job.lat {
		s.Lat.spell(g, &m.Latency, bins)
	}
	s.course(g.Points, op)
	return s
}

// mixed returns the figures of all directions together.
func mixed(g *Reported, bins bool) Side {
	all := *g
	all.Ops[loadgen.Read] = *g.Total()
	all.Points = slices.Clone(g.Points)
	for i := range all.Points {
		p := &all.Points[i]
		for _, op := range []loadgen.Op{loadgen.Write, loadgen.Trim} {
			p.IOs[loadgen.Read] += p.IOs[op]
			p.Bytes[loadgen.Read] += p.Bytes[op]
		}
	}
	return side(&all, loadgen.Read, bins)
}

// syncs returns the figures of a job's flushes.
func syncs(g *Reported, bins bool) syncSide {
	h := &g.Syncs.Latency
	if h.Count() == 0 {
		return syncSide{}
	}
	s := syncSide{TotalIOs: h.Count(), Lat: latency(h)}
	if !g.Job.noClat || g.Job.lat {
		s.Lat.spell(g, h, bins)
	}
	return s
}

func latency(h *loadgen.Histogram) Latency {
	return Latency{Min: h.Min(), Max: h.Max(), Mean: h.Mean(), StdDev: h.StdDev(), N: h.Count()}
}

// defaultPercentiles are the percentiles that fio reports by default.
var defaultPercentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}

// percentiles returns those that the job requests.
func (j *Job) percentiles() []float64 {
	if j.Percentiles == nil {
		return defaultPercentiles
	}
	return j.Percentiles
}

// spell adds the percentiles that the job requests, and with bins all recorded latencies.
func (l *Latency) spell(g *Reported, h *loadgen.Histogram, bins bool) {
	for _, p := range g.Job.percentiles() {
		l.Percentiles = append(l.Percentiles, level{fmt.Sprintf("%.6f", p), float64(h.Percentile(p))})
	}
	if bins {
		for v, n := range h.Bins() {
			l.Bins = append(l.Bins, level{strconv.FormatInt(v, 10), float64(n)})
		}
	}
}

// course fills in the statistics of the samples.
func (s *Side) course(points []loadgen.Point, op loadgen.Op) {
	var iops, bw moments
	for i := range points {
		p := &points[i]
		if sec := p.Length.Seconds(); sec > 0 {
			iops.add(float64(p.IOs[op]) / sec)
			bw.add(float64(p.Bytes[op]) / sec / 1024)
		}
	}
	if iops.n == 0 {
		return
	}
	s.IOPSMin, s.IOPSMax = uint64(iops.min), uint64(iops.max)
	s.IOPSMean, s.IOPSStdDev, s.IOPSSamples = iops.mean(), iops.stddev(), iops.n
	s.BWMin, s.BWMax = uint64(bw.min), uint64(bw.max)
	s.BWMean, s.BWDev, s.BWSamples = bw.mean(), bw.stddev(), bw.n
}

type moments struct {
	n                      int
	min, max, sum, squares float64
}

func (m *moments) add(v float64) {
	if m.n == 0 || v < m.min {
		m.min = v
	}
	m.max = max(m.max, v)
	m.n++
	m.sum += v
	m.squares += v * v
}

func (m *moments) mean() float64 { return m.sum / float64(m.n) }

// stddev returns the sample standard deviation, as in fio: the divisor is one less than the number of samples.
func (m *moments) stddev() float64 {
	return math.Sqrt(max(m.squares-m.sum*m.mean(), 0) / float64(max(m.n-1, 1)))
}

// spread assigns names to shares in percent; missing shares are 0.
func spread(shares []float64, names ...string) levels {
	l := make(levels, len(names))
	for i, n := range names {
		l[i].name = n
		if i < len(shares) {
			l[i].value = shares[i]
		}
	}
	return l
}

func depthLevels(counts [7]uint64) levels {
	var all uint64
	for _, n := range counts {
		all += n
	}
	shares := make([]float64, len(counts))
	for i, n := range counts {
		shares[i] = 100 * float64(n) / float64(max(all, 1))
	}
	return spread(shares, "1", "2", "4", "8", "16", "32", ">=64")
}

// latencyShares returns fio's shares: the percentages of operations that took less than each bound, and not less than
// the previous one.
func latencyShares(m *loadgen.Measured) (ns, us, ms levels) {
	bounds := []int64{2, 4, 10, 20, 50, 100, 250, 500, 750, 1000}
	shares := make([]float64, 3*len(bounds)+2)
	for v, n := range m.Latency.Bins() {
		share := 100 * float64(n) / float64(m.Latency.Count())
		unit, i := int64(1), 0
		for i < len(shares)-2 && v >= bounds[i%len(bounds)]*unit {
			if i++; i%len(bounds) == 0 {
				unit *= 1000
			}
		}
		if i == len(shares)-2 && v >= int64(2*time.Second) {
			i++
		}
		shares[i] += share
	}
	names := []string{"2", "4", "10", "20", "50", "100", "250", "500", "750", "1000"}
	return spread(shares[:10], names...), spread(shares[10:20], names...),
		spread(shares[20:], append(names[:10:10], "2000", ">=2000")...)
}
