package main

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestUnlistenStates: with an endpoint go the ANA states that it has, and no others.
func TestUnlistenStates(t *testing.T) {
	var one, two cli.Endpoint
	for e, text := range map[*cli.Endpoint]string{&one: "tcp://127.0.0.1:4420", &two: "tcp://127.0.0.1:4421"} {
		var err error
		if *e, err = cli.ParseEndpoint(text); err != nil {
			t.Fatal(err)
		}
	}
	state := config.ANAState(nvme.ANAInaccessible)
	everywhere, ofOne, ofTwo := config.ANA{Group: 1, State: state}, config.ANA{Group: 1, State: state, Listen: &one}, config.ANA{Group: 1, State: state, Listen: &two}
	cfg := &config.Config{Listen: []cli.Endpoint{one, two}, ANA: []config.ANA{everywhere, ofOne, ofTwo}}
	if err := removeListener(cfg, one); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(cfg.Listen, []cli.Endpoint{two}) || !slices.Equal(cfg.ANA, []config.ANA{everywhere, ofTwo}) {
		t.Errorf("it listens on %v with %v", cfg.Listen, cfg.ANA)
	}
}
