// Package verbstest provides the acceptance suite that every provider of verbs must pass: what package verbs promises,
// and the NVMe/RDMA binding relies on.
//
//	func TestProvider(t *testing.T) {
//		verbstest.Run(t, verbstest.Config{New: …})
//	}
//
// All connections are made by RDMA-CM, as queue pairs of some transports can't be connected by hand.
package verbstest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Config says how RNICs of a provider are opened, and what they lack.
type Config struct {
	// New opens two RNICs that reach each other, and has t.Cleanup close them; the suite may have closed them before.
	New func(t *testing.T) (host, target RNIC)
	// Lacks are the operations that the RNICs refuse with verbs.ErrUnsupported. Those without WRBindMW have no memory
	// windows.
	Lacks []verbs.WROpcode
}

// RNIC is an open RNIC.
type RNIC struct {
	verbs.ConnectionManager
	Addr  netip.Addr // its listeners'
	Close func() error
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			s := &session{T: t, c: &c}
			s.host, s.target = c.New(t)
			x.run(s)
		})
	}
}

var tests = []struct {
	name string
	run  func(*session)
}{
	{"connect", testConnect},
	{"reject", testReject},
	{"nobody listens", testNobodyListens},
	{"target speaks first", testTargetFirst},
	{"sends", testSends},
	{"writes", testWrites},
	{"reads", testReads},
	{"immediate data", testImmediate},
	{"atomics", testAtomics},
	{"completions in order", testOrder},
	{"windows", testWindows},
	{"local invalidate", testLocalInvalidate},
	{"no access", testNoAccess},
	{"handlers post", testHandlersPost},
	{"arming", testArming},
	{"disconnect", testDisconnect},
	{"last words", testLastWords},
	{"destroy", testDestroy},
	{"limits", testLimits},
	{"lifetimes", testLifetimes},
	{"device removal", testRemoval},
}

// session is one test's pair of RNICs.
type session struct {
	*testing.T
	c            *Config
	host, target RNIC
}

// lacks reports whether the RNICs have no operation op.
func (s *session) lacks(op verbs.WROpcode) bool { return slices.Contains(s.c.Lacks, op) }

func (s *session) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
