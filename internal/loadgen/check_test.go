package loadgen

import (
	"strings"
	"testing"
)

// zones makes a spec use zones, the same in every direction.
func zones(z ...Zone) func(*Spec) {
	return func(s *Spec) { s.Distribution, s.Zones = Distribution{Kind: Zoned}, [ops][]Zone{z, z, z} }
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		change func(*Spec)
		says   string
	}{
		{func(s *Spec) { s.RW = "readrand" }, "rw="},
		{func(s *Spec) { s.RunLength = -1 }, "rw=randread:-1: want a number of operations"},
		{func(s *Spec) { s.RW, s.Skip = "read", 1000 }, "rw=read:1000: want a multiple of the namespace's block, 512 bytes, and less than the range, 1.0 MiB"},
		{func(s *Spec) { s.RW, s.Skip = "read", fakeSize }, "less than the range"},
		{func(s *Spec) { s.RW, s.Skip = "read", -fakeSize }, "rw=read:-1048576: want"},
		{func(s *Spec) { s.BS[Read] = Fixed(1000) }, "bs="},
		{func(s *Spec) { s.BS[Read] = Fixed(0) }, "bs="},
		{func(s *Spec) { s.BS[Read] = Split{{Bytes: 0, Percent: 50}, {Bytes: 4096, Percent: 50}} }, "bssplit=0: want at least one block"},
		{func(s *Spec) { s.BS[Read] = Split{{Bytes: 4096, Percent: 50}, {Bytes: 1000, Percent: 50}} }, "bssplit=1000: want a multiple"},
		{func(s *Spec) { s.BS[Read] = Range(1000, 5000) }, "bsrange=1000: want a multiple"},
		{func(s *Spec) { s.BS[Read] = Split{{Bytes: 4096, Percent: 60}, {Bytes: 8192, Percent: 50}} }, "110 percent"},
		{func(s *Spec) { s.BS[Read] = Split{{Bytes: 4096, Percent: -10}, {Bytes: 8192, Percent: 110}} }, "bssplit="},
		{func(s *Spec) { s.RWMixRead = 101 }, "rwmixread="},
		{func(s *Spec) { s.Align[Read] = 1000 }, "blockalign=1000: want a multiple"},
		{func(s *Spec) { s.Align[Read] = 2 * fakeSize }, "the range has"},
		{func(s *Spec) { s.Distribution = Distribution{Normal, 100} }, "less than 100, as normal:20"},
		{zones(Zone{Percent: 60, Share: 10}, Zone{Percent: 30, Share: 90}), "90 percent of the operations"},
		{zones(Zone{Percent: 60, Share: 20}, Zone{Percent: 40, Share: 90}), "110 percent of the range"},
		{zones(Zone{Percent: 100}), "not empty"},
		{zones(Zone{Percent: 100, Bytes: 4095}), "at least one operation"},
		{zones(Zone{Percent: 50, Bytes: 4096}, Zone{Percent: 50, Bytes: fakeSize}), "and the range"},
		{func(s *Spec) { s.IODepth = 0 }, "iodepth="},
		{func(s *Spec) { s.NumJobs = 1 << 30 }, "numjobs="},
		{func(s *Spec) { s.Offset = 100 }, "offset="},
		{func(s *Spec) { s.IOSize = -1 }, "io_size=-1: want bytes"},
		{func(s *Spec) { s.Loops = -1 }, "loops=-1: want"},
		{func(s *Spec) { s.NumberIOs = -1 }, "number_ios=-1: want"},
		{func(s *Spec) { s.Fsync = -1 }, "fsync=-1: want"},
		{func(s *Spec) { s.RW, s.Zeroes, s.Verify = "write", true, true }, "zero_buffers: verify writes"},
		{func(s *Spec) { s.Compress = 101 }, "buffer_compress_percentage=101: want 0 to 100 percent"},
		{func(s *Spec) { s.Compress = -1 }, "buffer_compress_percentage=-1"},
		{func(s *Spec) { s.CompressChunk = -1 }, "buffer_compress_chunk=-1: want a size of at least 512 bytes, or 0 for all of an operation"},
		{func(s *Spec) { s.CompressChunk = 511 }, "buffer_compress_chunk=511: want a size"},
		{func(s *Spec) { s.Dedupe = 101 }, "dedupe_percentage=101: want 0 to 100 percent"},
		{func(s *Spec) { s.Dedupe = -1 }, "dedupe_percentage=-1"},
		{func(s *Spec) { s.RW, s.Dedupe, s.Verify = "randrw", 1, true }, "want one of them"},
		{func(s *Spec) { s.RW, s.Compress, s.Zeroes = "write", 1, true }, "want one of them"},
		{func(s *Spec) { s.Fdatasync = -1 }, "fdatasync=-1: want"},
		{func(s *Spec) { s.Backlog = -1 }, "verify_backlog=-1: want"},
		{func(s *Spec) { s.BacklogBatch = -1 }, "verify_backlog_batch=-1: want"},
		{func(s *Spec) { s.Verify, s.Backlog = true, 1<<24+1 }, "verify_backlog=16777217: want at most 16777216, as each of these writes takes 16 bytes of memory"},
		{func(s *Spec) { s.Backlog = 4 }, "verify_backlog needs --verify=crc32c"},
		{func(s *Spec) { s.Verify, s.BacklogBatch = true, 4 }, "verify_backlog_batch needs a verify_backlog"},
		{func(s *Spec) { s.RW, s.Verify, s.Backlog, s.RateIOPS[Read] = "randrw", true, 4, 1 }, "want no rate, rate_iops or latency_target"},
		{func(s *Spec) {
			s.RW, s.Verify, s.Backlog, s.LatencyTarget, s.LatencyWindow = "randtrimwrite", true, 4, 1, 1
		}, "want no rate, rate_iops or latency_target"},
		{func(s *Spec) { s.Offset = fakeSize }, "offset="},
		{func(s *Spec) { s.Size = fakeSize + 512 }, "size="},
		{func(s *Spec) { s.Size = 512 }, "size="},
		{func(s *Spec) { s.SizePercent = 101 }, "size="},
		{func(s *Spec) { s.OffsetPercent = 100 }, "offset=100%"},
		{func(s *Spec) { s.Runtime = -1 }, "runtime"},
		{func(s *Spec) { s.RampTime = -1 }, "ramp_time"},
		{func(s *Spec) { s.TimeBased = true }, "time_based needs a runtime"},
		{func(s *Spec) { s.Delay = -1 }, "startdelay=-1ns"},
		{func(s *Spec) { s.ThinkTime = -1 }, "thinktime=-1ns"},
		{func(s *Spec) { s.ThinkIOs = -1 }, "thinktime_blocks=-1"},
		{func(s *Spec) { s.ThinkIOs = 4 }, "needs a thinktime"},
		{func(s *Spec) { s.Rate[Read] = -1 }, "rate="},
		{func(s *Spec) { s.RateIOPS[Read] = -1 }, "rate_iops="},
		{func(s *Spec) { s.RateIOPS[Read], s.Rate[Read] = 1, 1 }, "one of them"},
		{func(s *Spec) { s.RW, s.RateIOPS = "trimwrite", [ops]int{Write: 5, Trim: 6} }, "one rate"},
		{func(s *Spec) { s.RW, s.BS[Trim] = "trim", Fixed(1000) }, "bs=1000"},
		{func(s *Spec) { s.RW, s.BS[Trim] = "randtrimwrite", Fixed(2*fakeSize) }, "bs="},
		{func(s *Spec) { s.Poisson = true }, "rate_process=poisson"},
		{func(s *Spec) { s.Distribution = Distribution{Zipf, 0} }, "zipf:"},
		{func(s *Spec) { s.Distribution = Distribution{Zipf, 101} }, "up to 100"},
		{func(s *Spec) { s.Distribution = Distribution{Pareto, 1} }, "pareto:"},
		{func(s *Spec) { s.Distribution = Distribution{"gauss", 1} }, "random_distribution=gauss"},
		{func(s *Spec) { s.RW, s.Verify, s.IODepth, s.NumJobs = "write", true, 65, 2 }, "verify=crc32c: want a size of at least twice what is under way, iodepth × numjobs × bs = 532480 bytes"},
		{func(s *Spec) { s.RWMixRead = -1 }, "rwmixread=-1: want 0 to 100 percent"},
		{func(s *Spec) { s.NumJobs = 0 }, "numjobs=0: want at least 1 each"},
		{func(s *Spec) { s.IODepth, s.NumJobs = 32769, 2 }, "a product of at most 65536"},
		{func(s *Spec) { s.IOPercent = 101 }, "io_size=101%: want at most 100%"},
		{func(s *Spec) { s.IOPercent = -1 }, "io_size=-1%"},
		{func(s *Spec) { s.SizePercent = -1 }, "size=-1%"},
		{func(s *Spec) { s.OffsetPercent = -1 }, "offset=-1%"},
		{func(s *Spec) { s.Offset = -512 }, "offset=-512 bytes: want a multiple of 512 inside the namespace of 1.0 MiB"},
		{func(s *Spec) { s.Offset, s.Size = 512, fakeSize }, "size=1.0 MiB: the namespace has 1048064 bytes from offset 512 B on"},
		{func(s *Spec) { s.Offset = fakeSize - 2048 }, "bs=4.0 KiB: the namespace has 2.0 KiB from the offset on"},
		{func(s *Spec) { s.LatencyPercentile = -1 }, "latency_percentile=-1"},
		{func(s *Spec) { s.LatencyTarget, s.LatencyWindow, s.ThinkTime = 1, 1, 1 }, "want no rate, rate_iops or thinktime"},
		{func(s *Spec) { s.RW, s.Rate = "trimwrite", [ops]int64{Write: 5, Trim: 6} }, "one rate"},
		{func(s *Spec) { s.Sequential[Read] = 101 }, "percentage_random=-1: want 0 to 100 percent"},
		{func(s *Spec) { s.Sequential[Write] = -1 }, "percentage_random=101: want"},
		{func(s *Spec) { s.Distribution = Distribution{Pareto, 0} }, "pareto:0: want a share between 0 and 1"},
		{func(s *Spec) { s.Distribution = Distribution{Normal, -1} }, "normal:-1: want"},
		{zones(Zone{Percent: -10, Share: 50}, Zone{Percent: 110, Share: 50}), "not empty"},
		{zones(Zone{Percent: 50, Share: -50}, Zone{Percent: 50, Share: 50}), "not empty"},
		{zones(Zone{Percent: 60, Bytes: 5 << 60}, Zone{Percent: 40, Bytes: 5 << 60}), "and the range"},
		{zones(Zone{Percent: 50, Bytes: -4096}, Zone{Percent: 50, Share: 50}), "not empty"},
	} {
		s := spec("randread")
		tc.change(&s)
		if err := s.Validate(fakeSize, fakeBlock); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: error %v, want one that says %q", s, err, tc.says)
		}
	}
	for _, change := range []func(*Spec){
		func(s *Spec) { s.RW, s.Skip = "read", fakeSize-512 },
		func(s *Spec) { s.RW, s.Skip = "read", 512-fakeSize },
		func(s *Spec) { s.RunLength = 1000 },
		func(s *Spec) { s.RWMixRead = 0 },
		func(s *Spec) { s.RWMixRead = 100 },
		func(s *Spec) { s.IODepth, s.NumJobs = 32768, 2 },
		func(s *Spec) { s.IOPercent, s.SizePercent, s.OffsetPercent = 100, 100, 99 },
		func(s *Spec) { s.Sequential = [ops]int{0, 100, 0} },
		func(s *Spec) { s.Offset = fakeSize - 4096 },
		func(s *Spec) { s.Size = 4096 },
		func(s *Spec) { s.Size, s.Align[Read] = 8192, 8192 },
		func(s *Spec) { s.BS[Read] = Fixed(fakeSize) },
		func(s *Spec) { s.BS[Read] = Split{{Bytes: 4096, Percent: 0}, {Bytes: 8192, Percent: 100}} },
		func(s *Spec) { s.BS[Trim] = Fixed(1000) }, // it trims nothing
		func(s *Spec) { s.RW, s.Verify, s.IODepth, s.NumJobs = "write", true, 64, 2 },
		func(s *Spec) { s.RW, s.Verify, s.IODepth = "read", true, 200 }, // reads may overlap
		func(s *Spec) { s.Poisson, s.RateIOPS[Read] = true, 1 },
		func(s *Spec) { s.Verify, s.Backlog, s.BacklogBatch = true, 4, 8 },
		func(s *Spec) { s.Verify, s.Backlog = true, 1<<24 },
		func(s *Spec) { s.Compress, s.CompressChunk, s.Dedupe = 100, 512, 100 },
		func(s *Spec) { s.Compress, s.CompressChunk, s.Dedupe = 100, 0, 100 },
		func(s *Spec) { s.Verify, s.Compress, s.Dedupe, s.Zeroes = true, 50, 50, true }, // it writes nothing
		func(s *Spec) { s.RW, s.Compress, s.Zeroes = "trim", 1, true },
		func(s *Spec) { s.Verify, s.Backlog, s.RateIOPS[Read] = true, 4, 1 },
		func(s *Spec) { s.Verify, s.Backlog, s.LatencyTarget, s.LatencyWindow = true, 4, 1, 1 },
		func(s *Spec) { s.LatencyPercentile = 100 },
		func(s *Spec) { s.Distribution = Distribution{Zipf, 100} },
		func(s *Spec) { s.Distribution = Distribution{Normal, 0} },
		zones(Zone{Percent: 0, Share: 50}, Zone{Percent: 100, Share: 50}),
		zones(Zone{Percent: 50, Bytes: 4096}, Zone{Percent: 50, Bytes: fakeSize - 4096}),
	} {
		s := spec("randread")
		change(&s)
		if err := s.Validate(fakeSize, fakeBlock); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	s := spec("readrand")
	if _, err := Run(t.Context(), &fakeDevice{}, []Spec{spec("read"), s}, Options{}); err == nil || !strings.HasPrefix(err.Error(), "test: rw=readrand: ") {
		t.Errorf("a run with it: %v", err)
	}
}
