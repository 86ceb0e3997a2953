package main

import (
	"os"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(answererEnv); spec != "" {
		exitOn(answer(spec))
		return
	}
	os.Exit(m.Run())
}

func TestEveryAnswerArrives(t *testing.T) {
	for _, w := range []workload{
		{4 << 10, 32, true, true, true, udp.DefaultBusyPoll}, {128 << 10, 4, true, true, false, udp.DefaultBusyPoll},
		{4 << 10, 1, false, false, false, 0},
	} {
		r, err := measure(w, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if r.PerSecond == 0 || r.Lost != 0 {
			t.Errorf("%+v: %+v", w, r)
		}
	}
}

func TestTCPAnswers(t *testing.T) {
	for _, l := range []tcpLoad{{1, 64}, {8, 2}} {
		r, err := measureTCP(l, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if r.PerSecond == 0 {
			t.Errorf("%+v: %+v", l, r)
		}
	}
}
