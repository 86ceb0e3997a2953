package main

import (
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// TestIdleFlags: the command line accepts the same options without effect as a job file, reports them in the same
// way, and rejects the same ones.
func TestIdleFlags(t *testing.T) {
	const goesOn = "nvmeinit: -t: no transport given: want rdma or tcp\n" // printed once the whole command line has been read
	for options, want := range map[string]string{
		"--direct=1 --ioengine=libaio --rw read":     "without effect here: direct, ioengine\n" + goesOn,
		"--ioengine libaio --thread --iodepth 4":     "without effect here: ioengine, thread\n" + goesOn,
		"--direct 1 --filename /dev/nvme0n1 --hipri": "without effect here: direct, filename, hipri\n" + goesOn,
		"--log_offset 1 --thread --invalidate 1":     "without effect here: thread, invalidate\n" + goesOn,
		"--iodepth 4":                                goesOn,
		"--direct=0":                                 `nvmeinit: --direct "0": commands go to the namespace past every cache of this machine; leave the option out`,
		"--gtod_reduce=1 --eta never":                "without effect here: gtod_reduce, eta\n" + goesOn,
		"--lat_percentiles 1":                        `nvmeinit: --lat_percentiles "1": percentile_list says`,
		"--rw randwrite --readonly":                  "nvmeinit: --rw=randwrite: it changes the namespace, and --readonly forbids that",
		"--rw randread --readonly":                   goesOn,
		"--filename=a --filename=b":                  `nvmeinit: --filename "b": filename=b, and a: all jobs run on one namespace`,
		"--ioengine=":                                `nvmeinit: --ioengine "": it is empty`,
		"--write_iolog=x --direct=1":                 "nvmeinit: --write_iolog: --pcap writes down every packet",
	} {
		root := newRoot()
		var says strings.Builder
		root.SetArgs(append([]string{"bench"}, strings.Fields(options)...))
		if code := cli.Execute(t.Context(), root, &says); code != cli.ExitUsage || !strings.HasPrefix(says.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", options, code, says.String(), want)
		}
	}
}
