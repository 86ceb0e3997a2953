package cm

import (
	"fmt"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Config bounds what peers can make a Manager hold. The zero value of a field is its default.
type Config struct {
	// MaxConnections bounds the connections in the table, those in TIMEWAIT included; 65536.
	// A request beyond it is rejected with reason 3 (no resources).
	MaxConnections int
	// MaxHalfOpen bounds the passive connections that are not confirmed by their peer yet, over
	// all listeners; 1024. A request beyond it is rejected with reason 3.
	MaxHalfOpen int
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	if c.MaxConnections < 0 || c.MaxHalfOpen < 0 {
		return fmt.Errorf("rdma-cm: negative limit in %+v: %w", c, verbs.ErrInvalid)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.MaxConnections == 0 {
		c.MaxConnections = 65536
	}
	if c.MaxHalfOpen == 0 {
		c.MaxHalfOpen = 1024
	}
	return c
}

// defaultBacklog is that of a Listen with backlog 0.
const defaultBacklog = 128
