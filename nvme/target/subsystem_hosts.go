package target

import "github.com/nvme-anywhere/nvmeof/nvme"

// access says which hosts may use a subsystem; it is replaced as a whole.
type access struct {
	any   bool
	hosts map[string]bool
}

func newAccess(anyHost bool, hosts []string) *access {
	a := &access{any: anyHost, hosts: map[string]bool{}}
	for _, h := range hosts {
		a.hosts[h] = true
	}
	return a
}

func (s *Subsystem) allows(host string) bool {
	a := s.access.Load()
	return a.any || a.hosts[host]
}

// SetHosts replaces AllowAnyHost and Hosts of the configuration. Hosts that are connected stay so until
// Target.DisconnectRevoked: the new rules apply to queues that connect. Discovery controllers are told, because what the
// subsystem's hosts find has changed. The error is ErrConfig, for a name that is not an NQN.
func (s *Subsystem) SetHosts(anyHost bool, hosts []string) error {
	for _, h := range hosts {
		if err := nvme.CheckNQN(h); err != nil {
			return configError("subsystem %s: host: %v", s.nqn, err)
		}
	}
	a := newAccess(anyHost, hosts)
	s.t.mu.Lock()
	s.access.Store(a)
	s.t.generation++
	s.t.mu.Unlock()
	s.t.discoveryChanged()
	return nil
}
