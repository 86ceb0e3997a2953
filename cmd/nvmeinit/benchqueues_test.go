package main

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestQueuesOfJobs: bench requests queues with room for the outstanding operations of its jobs, shared or not, and
// what the user says with -Q.
func TestQueuesOfJobs(t *testing.T) {
	for _, c := range []struct {
		numjobs, iodepth, queues, controllers, given int
		wantQueues, wantSize                         int
	}{
		{1, 32, 0, 1, 0, 1, 128},
		{1, 128, 0, 1, 0, 1, 129},
		{8, 32, 0, 1, 0, 8, 128},
		{8, 32, 2, 1, 0, 2, 129},
		{9, 32, 2, 2, 0, 2, 128},
		{9, 64, 2, 2, 0, 2, 193},
		{9, 32, 0, 2, 0, 5, 128},
		{8, 127, 0, 2, 0, 4, 128},
		{1, 32, 0, 1, 8, 1, 8},
		{1, 65536, 0, 1, 0, 1, 65536},
		{65534, 1, 0, 1, 0, 65534, 128},
		{65535, 1, 0, 1, 0, 65534, 128},
		{3 * 65534, 1, 0, 2, 0, 65534, 128},
	} {
		j := fio.NewJob("test")
		j.NumJobs, j.IODepth = c.numjobs, c.iodepth
		f := &benchFlags{controllers: c.controllers, jobs: []*fio.Job{j}, queueSizeGiven: c.given != 0}
		f.conn.queues = c.queues
		cfg := host.Config{Queues: c.queues, QueueSize: 128}
		if c.given != 0 {
			cfg.QueueSize = c.given
		}
		if f.shape(&cfg); cfg.Queues != c.wantQueues || cfg.QueueSize != c.wantSize {
			t.Errorf("%+v: %d queues of %d", c, cfg.Queues, cfg.QueueSize)
		}
	}
}
