package config

import (
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// ANA is the state of an ANA group at an endpoint. A group that is not listed is optimized.
type ANA struct {
	Group  uint32        `yaml:"group"`
	State  ANAState      `yaml:"state"`
	Listen *cli.Endpoint `yaml:"listen,omitempty"` // nil: at every endpoint without an entry of its own
}

// ANAState is an ANA state, with the names of Linux's nvmet.
type ANAState nvme.ANAState

// anaStates are the states that there are.
var anaStates = []nvme.ANAState{
	nvme.ANAOptimized, nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAPersistentLoss, nvme.ANAChange,
}

// ANAStates returns the names of the states.
func ANAStates() []string {
	names := make([]string, len(anaStates))
	for i, s := range anaStates {
		names[i] = s.String()
	}
	return names
}

// UnmarshalText parses a state.
func (s *ANAState) UnmarshalText(b []byte) error {
	i := slices.Index(ANAStates(), string(b))
	if i < 0 {
		return fmt.Errorf("%q: want %s", b, cli.Or(ANAStates()))
	}
	*s = ANAState(anaStates[i])
	return nil
}

// UnmarshalYAML is UnmarshalText for the YAML library (see cli.UnmarshalYAML).
func (s *ANAState) UnmarshalYAML(decode func(any) error) error { return cli.UnmarshalYAML(s, decode) }

// MarshalText formats s so that UnmarshalText can parse it.
func (s ANAState) MarshalText() ([]byte, error) {
	if !slices.Contains(anaStates, nvme.ANAState(s)) {
		return nil, fmt.Errorf("ANA state %d has no name", s)
	}
	return []byte(nvme.ANAState(s).String()), nil
}

func (c *Config) checkANA() *FieldError {
	for i, a := range c.ANA {
		at := fmt.Sprintf("ana[%d].", i)
		if err := checkGroup(at+"group", a.Group); err != nil {
			return err
		}
		if a.State == 0 {
			return field(at+"state", "", "it is missing: want %s", cli.Or(ANAStates()))
		}
		if a.Listen != nil && !slices.Contains(c.endpoints(), *a.Listen) {
			return field(at+"listen", a.Listen.String(), "the target doesn't listen there")
		}
		if slices.ContainsFunc(c.ANA[:i], func(b ANA) bool { return b.Group == a.Group && sameEndpoint(a.Listen, b.Listen) }) {
			return field(at+"group", fmt.Sprint(a.Group), "it is given twice for the same endpoint")
		}
	}
	return nil
}

func checkGroup(name string, group uint32) *FieldError {
	if group < 1 || group > target.MaxANAGroup {
		return field(name, fmt.Sprint(group), "want 1 to %d", target.MaxANAGroup)
	}
	return nil
}

func sameEndpoint(a, b *cli.Endpoint) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// ANAState returns the configured state of a group at an endpoint.
func (c *Config) ANAState(e cli.Endpoint, group uint32) nvme.ANAState {
	state := nvme.ANAOptimized
	for _, a := range c.ANA {
		switch {
		case a.Group != group:
		case a.Listen == nil:
			state = nvme.ANAState(a.State)
		case *a.Listen == e:
			return nvme.ANAState(a.State)
		}
	}
	return state
}

// SetANA sets the state of a group at an endpoint, or at all of them if listen is nil.
func (c *Config) SetANA(group uint32, state nvme.ANAState, listen *cli.Endpoint) {
	c.ANA = slices.DeleteFunc(c.ANA, func(a ANA) bool {
		return a.Group == group && (listen == nil || sameEndpoint(a.Listen, listen))
	})
	c.ANA = append(c.ANA, ANA{Group: group, State: ANAState(state), Listen: listen})
}
