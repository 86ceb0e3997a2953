package loadgen

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// limitDepth bounds IODepth × NumJobs, and thereby the memory for buffers.
const limitDepth = 1 << 16

// Check reports which option is wrong whatever the device.
func (s *Spec) Check() error {
	if _, known := patterns[s.RW]; !known {
		return fmt.Errorf("rw=%s: want one of %s", s.RW, strings.Join(Patterns, ", "))
	}
	for op := range ops {
		if err := s.BS[op].check(); err != nil {
			return err
		}
	}
	switch {
	case s.RWMixRead < 0 || s.RWMixRead > 100:
		return fmt.Errorf("rwmixread=%d: want 0 to 100 percent", s.RWMixRead)
	case s.IODepth < 1 || s.NumJobs < 1 || s.IODepth > limitDepth/s.NumJobs:
		return fmt.Errorf("iodepth=%d, numjobs=%d: want at least 1 each, and a product of at most %d", s.IODepth, s.NumJobs, limitDepth)
	case s.IOSize < 0:
		return fmt.Errorf("io_size=%d: want bytes", s.IOSize)
	case s.IOPercent < 0 || s.IOPercent > 100:
		return fmt.Errorf("io_size=%d%%: want at most 100%%", s.IOPercent)
	case s.OffsetPercent < 0 || s.OffsetPercent >= 100:
		return fmt.Errorf("offset=%d%%: want less than 100%%", s.OffsetPercent)
	case s.SizePercent < 0 || s.SizePercent > 100:
		return fmt.Errorf("size=%d%%: want at most 100%%", s.SizePercent)
	}
	if err := s.checkNumbers(); err != nil {
		return err
	}
	if err := s.checkContent(); err != nil {
		return err
	}
	if err := s.checkTimes(); err != nil {
		return err
	}
	if err := s.checkBacklog(); err != nil {
		return err
	}
	if err := s.checkSeek(); err != nil {
		return err
	}
	if err := s.checkRates(); err != nil {
		return err
	}
	return s.checkDistribution()
}

func (s *Spec) checkNumbers() error {
	for _, c := range []struct {
		option string
		n      int64
	}{{"loops", int64(s.Loops)}, {"number_ios", s.NumberIOs}, {"verify_backlog", s.Backlog}, {"verify_backlog_batch", s.BacklogBatch}, {"fsync", int64(s.Fsync)}, {"fdatasync", int64(s.Fdatasync)}, {"thinktime_blocks", int64(s.ThinkIOs)}} {
		if c.n < 0 {
			return fmt.Errorf("%s=%d: want a number from 0", c.option, c.n)
		}
	}
	return nil
}

func (s *Spec) checkContent() error {
	writes := s.Does(Write)
	switch {
	case writes && s.Zeroes && s.Verify:
		return errors.New("zero_buffers: verify writes data that differ everywhere; want one of them")
	case s.Compress < 0 || s.Compress > 100:
		return fmt.Errorf("buffer_compress_percentage=%d: want 0 to 100 percent", s.Compress)
	case s.CompressChunk != 0 && s.CompressChunk < leastChunk:
		return fmt.Errorf("buffer_compress_chunk=%d: want a size of at least %d bytes, or 0 for all of an operation", s.CompressChunk, leastChunk)
	case s.Dedupe < 0 || s.Dedupe > 100:
		return fmt.Errorf("dedupe_percentage=%d: want 0 to 100 percent", s.Dedupe)
	case writes && s.composed() && (s.Verify || s.Zeroes):
		return errors.New("buffer_compress_percentage, dedupe_percentage: verify writes data that differ everywhere, and zero_buffers zeroes; want one of them")
	}
	return nil
}

func (s *Spec) checkBacklog() error {
	switch {
	case s.BacklogBatch > 0 && s.Backlog == 0:
		return errors.New("verify_backlog_batch needs a verify_backlog, as --verify_backlog=1024")
	case s.Backlog == 0:
		return nil
	case s.Backlog > maxBacklog:
		return fmt.Errorf("verify_backlog=%d: want at most %d, as each of these writes takes 16 bytes of memory until it is read back", s.Backlog, maxBacklog)
	case !s.Verify:
		return errors.New("verify_backlog needs --verify=crc32c")
	case s.Does(Write) && (s.hasRate() || s.LatencyTarget > 0):
		return errors.New("verify_backlog has a job stop to read back what it wrote; want no rate, rate_iops or latency_target")
	}
	return nil
}

func (s *Spec) checkSeek() error {
	switch {
	case !(s.LatencyPercentile >= 0 && s.LatencyPercentile <= 100):
		return fmt.Errorf("latency_percentile=%v: want more than 0 to 100 percent", s.LatencyPercentile)
	case s.LatencyTarget == 0:
		return nil
	case s.LatencyWindow == 0:
		return fmt.Errorf("latency_target needs a latency_window, as latency_window=1s: how long each depth is tried")
	case s.hasRate() || s.ThinkTime > 0:
		return fmt.Errorf("latency_target=%v: it is a depth that is sought; want no rate, rate_iops or thinktime", s.LatencyTarget)
	}
	return nil
}

func (s *Spec) checkTimes() error {
	for _, c := range []struct {
		option string
		time   time.Duration
	}{{"runtime", s.Runtime}, {"ramp_time", s.RampTime}, {"startdelay", s.Delay}, {"thinktime", s.ThinkTime}, {"thinktime_spin", s.ThinkSpin}, {"log_avg_msec", s.LogEvery}, {"latency_target", s.LatencyTarget}, {"latency_window", s.LatencyWindow}} {
		if c.time < 0 {
			return fmt.Errorf("%s=%v: want a positive time", c.option, c.time)
		}
	}
	for _, most := range s.MaxLatency {
		if most < 0 {
			return fmt.Errorf("max_latency=%v: want a positive time", most)
		}
	}
	switch {
	case s.TimeBased && s.Runtime == 0:
		return fmt.Errorf("time_based needs a runtime, as --runtime=10s")
	case s.ThinkIOs > 0 && s.ThinkTime == 0:
		return fmt.Errorf("thinktime_blocks needs a thinktime, as --thinktime=10ms")
	case s.ThinkSpin > 0 && s.ThinkTime == 0:
		return fmt.Errorf("thinktime_spin needs a thinktime, as --thinktime=10ms")
	}
	return nil
}

func (s Split) check() error {
	total := 0
	for _, sh := range s {
		if sh.Bytes <= 0 {
			return fmt.Errorf("%s=%d: want at least one block", s.option(), sh.Bytes)
		}
		if sh.Percent < 0 {
			return fmt.Errorf("bssplit=%d/%d: want a share of 0 to 100 percent", sh.Bytes, sh.Percent)
		}
		total += sh.Percent
	}
	if total != 100 {
		return fmt.Errorf("bssplit: the shares make %d percent, want 100", total)
	}
	return nil
}

func (s *Spec) checkRates() error {
	for op := range ops {
		switch {
		case s.Rate[op] < 0:
			return fmt.Errorf("rate=%d: want bytes a second", s.Rate[op])
		case s.RateIOPS[op] < 0:
			return fmt.Errorf("rate_iops=%d: want operations a second", s.RateIOPS[op])
		case s.Rate[op] > 0 && s.RateIOPS[op] > 0:
			return fmt.Errorf("rate=%d, rate_iops=%d: want one of them", s.Rate[op], s.RateIOPS[op])
		}
	}
	if s.rewrites() && (s.Rate[Write] != s.Rate[Trim] || s.RateIOPS[Write] != s.RateIOPS[Trim]) {
		return fmt.Errorf("rw=%s has one rate, since a write follows each trim: want the same for both", s.RW)
	}
	if s.Poisson && !s.hasRate() {
		return fmt.Errorf("rate_process=poisson needs a rate or rate_iops")
	}
	return nil
}

func (s *Spec) checkDistribution() error {
	if s.RunLength < 0 {
		return fmt.Errorf("rw=%s:%d: want a number of operations, as %[1]s:8", s.RW, s.RunLength)
	}
	for op := range ops {
		if s.Sequential[op] < 0 || s.Sequential[op] > 100 {
			return fmt.Errorf("percentage_random=%d: want 0 to 100 percent", 100-s.Sequential[op])
		}
	}
	d := s.Distribution
	switch {
	case d.uniform():
		return nil
	case d.Kind == Zipf && !(d.Theta > 0 && d.Theta <= 100):
		return fmt.Errorf("random_distribution=zipf:%v: want an exponent above 0 and up to 100, as zipf:1.1", d.Theta)
	case d.Kind == Pareto && !(d.Theta > 0 && d.Theta < 1):
		return fmt.Errorf("random_distribution=pareto:%v: want a share between 0 and 1, as pareto:0.2", d.Theta)
	case d.Kind == Normal && !(d.Theta >= 0 && d.Theta < 100):
		return fmt.Errorf("random_distribution=normal:%v: want a deviation in percent, from 0 to less than 100, as normal:20", d.Theta)
	case d.Kind == Zoned:
		return s.checkZones()
	case d.Kind != Zipf && d.Kind != Pareto && d.Kind != Normal:
		return fmt.Errorf("random_distribution=%s: want random, zipf:THETA, pareto:SHARE, normal:PERCENT, zoned:PERCENT/PERCENT:… or zoned_abs:PERCENT/SIZE:…", d.Kind)
	}
	return nil
}

func (s *Spec) checkZones() error {
	for op := range ops {
		operations, shares := 0, 0
		for _, z := range s.Zones[op] {
			if z.Percent < 0 || z.Share < 0 || z.Bytes < 0 || z.Share == 0 && z.Bytes == 0 {
				return fmt.Errorf("random_distribution=zoned: want zones that are not empty, as 60/10:40/90")
			}
			operations += z.Percent
			shares += z.Share
		}
		switch {
		case operations != 100:
			return fmt.Errorf("random_distribution=zoned: the zones have %d percent of the operations, want 100", operations)
		case shares > 100:
			return fmt.Errorf("random_distribution=zoned: the zones make %d percent of the range, want at most 100", shares)
		}
	}
	return nil
}

// Validate reports which option can't be used on a device of the given size and block size.
func (s *Spec) Validate(size int64, blockSize int) error {
	if err := s.Check(); err != nil {
		return err
	}
	for op := range ops {
		for _, sh := range s.BS[op] {
			if s.Draws(op) && sh.Bytes%blockSize != 0 {
				return fmt.Errorf("%s=%d: want a multiple of the namespace's block, %d bytes", s.BS[op].option(), sh.Bytes, blockSize)
			}
		}
		if s.Align[op]%blockSize != 0 {
			return fmt.Errorf("blockalign=%d: want a multiple of the namespace's block, %d bytes", s.Align[op], blockSize)
		}
	}
	base, span := s.area(size)
	if base < 0 || base%int64(blockSize) != 0 || base >= size {
		return fmt.Errorf("offset=%s: want a multiple of %d inside the namespace of %s", bytesText(base), blockSize, bytesText(size))
	}
	if room := size - base; int64(s.largestBlock()) > room {
		return fmt.Errorf("bs=%s: the namespace has %s from the offset on", bytesText(int64(s.largestBlock())), bytesText(room))
	}
	if align := int64(slices.Max(s.Align[:])); align > span {
		return fmt.Errorf("blockalign=%d: the range has %d bytes", align, span)
	}
	if span < int64(s.largestBlock()) {
		return fmt.Errorf("size=%s: want at least one operation, %s", bytesText(span), bytesText(int64(s.largestBlock())))
	}
	if span > size-base {
		return fmt.Errorf("size=%s: the namespace has %s from offset %s on", bytesText(span), bytesText(size-base), bytesText(base))
	}
	if !s.random() && (s.Skip%int64(blockSize) != 0 || s.Skip >= span || s.Skip <= -span) {
		return fmt.Errorf("rw=%s:%d: want a multiple of the namespace's block, %d bytes, and less than the range, %s", s.RW, s.Skip, blockSize, bytesText(span))
	}
	if err := s.fitZones(span); err != nil {
		return err
	}
	if s.Verify && s.Changes() && int64(s.IODepth)*int64(s.NumJobs)*int64(s.largestBlock())*2 > span {
		// Outstanding operations never overlap when their data is to be checked.
		return fmt.Errorf("verify=crc32c: want a size of at least twice what is under way, iodepth × numjobs × bs = %d bytes",
			int64(s.IODepth)*int64(s.NumJobs)*int64(s.largestBlock()))
	}
	return nil
}

// fitZones checks that the zones fit in the range, and that each has room for an operation.
func (s *Spec) fitZones(span int64) error {
	for op := range ops {
		if !s.Draws(op) {
			continue
		}
		all := int64(0)
		for _, z := range s.Zones[op] {
			n := z.bytes(span)
			if least := s.unit(); n < least {
				return fmt.Errorf("random_distribution=zoned: a zone has %d bytes, want at least one operation, %d", n, least)
			}
			all += min(n, math.MaxInt64-all)
		}
		if all > span {
			return fmt.Errorf("random_distribution=zoned_abs: the zones have %d bytes, and the range %d", all, span)
		}
	}
	return nil
}

// bytesText formats a number of bytes for people, with a binary unit if that is exact.
func bytesText(n int64) string {
	if n < 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	text := humanize.IBytes(uint64(n))
	if back, err := humanize.ParseBytes(text); err != nil || back != uint64(n) {
		return fmt.Sprintf("%d bytes", n)
	}
	return text
}
