package main

import (
	"fmt"
	"net"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestANAOfNewEndpoint: a host that connects to a new endpoint as soon as that listens finds its ANA states, and
// reaches no group that it is kept from, though they are set one after the other.
func TestANAOfNewEndpoint(t *testing.T) {
	cfg := &config.Config{}
	for i := range 8 {
		sub := config.Subsystem{NQN: fmt.Sprint("nqn.2026-11.org.example:s", i)}
		for range target.MaxNSID {
			sub.Namespaces = append(sub.Namespaces, config.Namespace{Volume: "null:1MiB", ANAGroup: target.MaxANAGroup})
		}
		cfg.Subsystems = append(cfg.Subsystems, sub)
	}
	cfg.Subsystems[0].NQN = narrowedNQN
	s := started(t, cfg, freeEndpoint(t))
	defer s.close()
	next, _ := s.Config()
	at := freeEndpoint(t)
	next.Listen = append(next.Listen, at)
	for g := range uint32(target.MaxANAGroup) {
		next.SetANA(g+1, nvme.ANAInaccessible, &at)
	}
	done := make(chan error, 1)
	go func() { done <- s.Apply(next, "") }()
	for listens := false; !listens && len(done) == 0; {
		if c, err := net.Dial("tcp", at.Addr.String()); err == nil {
			c.Close()
			listens = true
		}
	}
	h, err := come(t, at, staysNQN)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	log, err := h.ANA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if log.ChangeCount != 0 || len(log.Groups) != 1 || log.Groups[0].State != nvme.ANAInaccessible {
		t.Errorf("the state has changed %d times since the host connected, and it has %d groups", log.ChangeCount, len(log.Groups))
	}
}
