package config

import (
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func endpointOf(t *testing.T, s string) cli.Endpoint {
	t.Helper()
	e, err := cli.ParseEndpoint(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestSetANA: the state of a group at an endpoint is its own there, or else that of all endpoints, or optimized.
// Setting it for all replaces those of single endpoints.
func TestSetANA(t *testing.T) {
	c := &Config{}
	a, b := endpointOf(t, "tcp://127.0.0.1"), endpointOf(t, "rdma://127.0.0.1")
	check := func(after string, want ...nvme.ANAState) {
		t.Helper()
		got := []nvme.ANAState{c.ANAState(a, 1), c.ANAState(b, 1), c.ANAState(a, 2), c.ANAState(b, 2)}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", after, got, want)
				return
			}
		}
	}
	check("at first", nvme.ANAOptimized, nvme.ANAOptimized, nvme.ANAOptimized, nvme.ANAOptimized)
	c.SetANA(1, nvme.ANAInaccessible, nil)
	c.SetANA(1, nvme.ANANonOptimized, &a)
	c.SetANA(2, nvme.ANAChange, &b)
	check("once set", nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAOptimized, nvme.ANAChange)
	c.SetANA(1, nvme.ANAChange, &a)
	c.SetANA(1, nvme.ANAPersistentLoss, &b)
	check("set at one more", nvme.ANAChange, nvme.ANAPersistentLoss, nvme.ANAOptimized, nvme.ANAChange)
	c.SetANA(1, nvme.ANANonOptimized, nil)
	check("set at all", nvme.ANANonOptimized, nvme.ANANonOptimized, nvme.ANAOptimized, nvme.ANAChange)
	if len(c.ANA) != 2 {
		t.Errorf("the states are %+v, want one entry for each group", c.ANA)
	}
}

// TestClone: what is changed in a copy stays as it is in the original.
func TestClone(t *testing.T) {
	c, err := Load("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	d := c.Clone()
	if b, err := d.Marshal(); err != nil || string(b) != string(before) {
		t.Errorf("%v; the copy is\n%s\nand not\n%s", err, b, before)
	}
	d.Listen[0] = endpointOf(t, "tcp://192.0.2.9")
	d.Authentication.Hosts[0].SecretFile = "changed"
	d.Authentication.Hashes[0], d.Authentication.DHGroups[0] = nvme.AuthSHA512, nvme.DHFFDHE2048
	d.Discovery.Referrals[0] = d.Listen[0]
	d.ANA[0].State = ANAState(nvme.ANAChange)
	d.Subsystems[0].Hosts[0] = "changed"
	d.Subsystems[0].Namespaces[0].Volume = "changed"
	d.Subsystems[1].NQN = "changed"
	if b, err := c.Marshal(); err != nil || string(b) != string(before) {
		t.Errorf("%v; after changes of a copy the original is\n%s\nand was\n%s", err, b, before)
	}
}

// TestDifference: what differs is named, as the file has it, with both values. Namespaces are the same if only one of
// them states the defaults.
func TestDifference(t *testing.T) {
	n := Namespace{NSID: 1, Volume: "disk.img"}
	for _, x := range []struct {
		change         func(*Namespace)
		name, was, now string
	}{
		{func(*Namespace) {}, "", "", ""},
		{func(n *Namespace) { n.IO, n.ANAGroup = "auto", 1 }, "", "", ""},
		{func(n *Namespace) { n.IO = "direct" }, "io", "auto", "direct"},
		{func(n *Namespace) { n.ANAGroup = 2 }, "ana_group", "1", "2"},
		{func(n *Namespace) { n.ReadOnly = true }, "read_only", "false", "true"},
		{func(n *Namespace) { n.Size = 1<<30 + 512 }, "size", "the default", "1073742336"},
		{func(n *Namespace) { n.EUI64 = &EUI64{1} }, "eui64", "the default", "0100000000000000"},
	} {
		o := n
		x.change(&o)
		if name, was, now := Difference(n.Explicit(), o.Explicit()); name != x.name || was != x.was || now != x.now {
			t.Errorf("%q from %q to %q, want %q from %q to %q", name, was, now, x.name, x.was, x.now)
		}
	}
	long := Duration(time.Minute)
	was := Config{Network: Network{InCapsule: new(cli.Size)}}
	for _, x := range []struct {
		now           Config
		name, was, is string
	}{
		{Config{Network: Network{InCapsule: new(cli.Size)}, DrainTimeout: &long}, "drain_timeout", "the default", "1m0s"},
		{Config{}, "network.in_capsule", "0 B", "the default"},
		{Config{Network: Network{BusyPoll: &long}}, "network.in_capsule", "0 B", "the default"},
	} {
		if name, was, now := Difference(was, x.now); name != x.name || was != x.was || now != x.is {
			t.Errorf("%q from %q to %q, want %q from %q to %q", name, was, now, x.name, x.was, x.is)
		}
	}
	create := Subsystem{Create: &Create{Directory: "/volumes", Capacity: 1 << 40}}
	if name, was, now := Difference(Subsystem{}, create); name != "create.directory" || was != "the default" || now != "/volumes" {
		t.Errorf("%q from %q to %q", name, was, now)
	}
}

// TestFind: subsystems and namespaces are found by name and number.
func TestFind(t *testing.T) {
	c := &Config{Subsystems: []Subsystem{{NQN: "a"}, {NQN: "b", Namespaces: []Namespace{{NSID: 3}, {NSID: 5}}}}}
	if c.Subsystem("a") != &c.Subsystems[0] || c.Subsystem("b") != &c.Subsystems[1] || c.Subsystem("c") != nil {
		t.Error("subsystems are not found by their NQNs")
	}
	s := &c.Subsystems[1]
	if s.Namespace(3) != &s.Namespaces[0] || s.Namespace(5) != &s.Namespaces[1] || s.Namespace(1) != nil {
		t.Error("namespaces are not found by their NSIDs")
	}
}
