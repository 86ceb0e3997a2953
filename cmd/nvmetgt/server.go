package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/metrics"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

// closeTime bounds the wait for ending connections when the program stops.
const closeTime = 5 * time.Second

// server is a running target and everything it holds.
type server struct {
	log  *slog.Logger
	said bytes.Buffer // what is printed when the target is ready
	mark string       // prefix of a setting's name in errors: "--" if it came from flags
	file string       // the configuration file; empty if the configuration came from flags

	service service
	drain   time.Duration // time for outstanding commands at the end
	target  *target.Target
	figures *metrics.Set
	capture *softrnic.Capture
	closers []func() error // last opened, first closed
	saving  sync.Mutex     // held by each save, so that the last one to end has saved the newest configuration

	// change serializes changes, each of which may wait for a pipe or for connections, and guards the fields that
	// follow. To read the first of these (up to finishing) now suffices, which is never held for long; to write
	// them takes both.
	change, now sync.Mutex
	stopped     bool            // no more changes are made
	patience    time.Duration   // how long to wait for a pipe with secrets; 0: forever
	starting    context.Context // interrupts that wait; nil once the program has started: then changes aren't interrupted
	cfg         *config.Config
	changes     uint64 // of cfg, in this run
	exports     map[exportKey]*export
	going       map[*export]bool // taken away from hosts, to be closed by finishing; now guards it
	finishing   sync.WaitGroup   // changes that have taken away something that is still in use

	run       string                         // identifies this run of the program
	auth      *target.Authentication         // as cfg asks for
	pools     map[string]*blockdev.Directory // for subsystems whose hosts create namespaces, by NQN
	listeners map[cli.Endpoint]*listener
	rnics     map[netip.Addr]*openRNICs

	incomplete error // why the capture is incomplete, once it is closed
}

// start creates everything that cfg describes, or fails.
func start(cfg *config.Config, s *server) error {
	cfg.Complete()
	s.run = rand.Text()
	s.figures = metrics.New()
	s.exports, s.going = map[exportKey]*export{}, map[*export]bool{}
	s.pools = map[string]*blockdev.Directory{}
	s.listeners = map[cli.Endpoint]*listener{}
	s.rnics = map[netip.Addr]*openRNICs{}
	s.drain = cfg.Drain()
	s.cfg = cfg.Clone()
	s.cfg.Listen, s.cfg.Subsystems, s.cfg.Discovery.Referrals = nil, nil, nil
	closing := s.watchVolumes() // closed last
	s.onClose(s.closeExports)
	if err := s.openTarget(); err != nil {
		return err
	}
	if err := s.openCapture(); err != nil {
		return err
	}
	s.onClose(s.closeListeners)
	// No host may connect before there is something to connect to. Secrets are read once: they may come from a pipe.
	volumes := cfg.Clone()
	volumes.Listen, volumes.Authentication = nil, nil
	for _, step := range []*config.Config{volumes, cfg} {
		if _, err := s.become(step); err != nil {
			return err
		}
	}
	s.patience, s.starting = changePatience, nil
	s.onClose(func() error { closing(); return nil })
	s.onClose(s.lastChange)
	return nil
}

// changePatience is how long a change waits for a pipe with secrets, and thus how long it holds up other changes.
// When the program starts there is no limit: somebody may have to type them.
const changePatience = 5 * time.Second

// lastChange waits for a change in progress, which continues even after the control socket has closed, and prevents
// further ones: what they would change is being closed.
func (s *server) lastChange() error {
	s.change.Lock()
	defer s.change.Unlock()
	s.stopped = true
	return nil
}

// onClose adds a function for close to call.
func (s *server) onClose(f func() error) { s.closers = append(s.closers, f) }

// close undoes everything, last opened first, and logs what goes wrong.
func (s *server) close() {
	for _, f := range slices.Backward(s.closers) {
		if err := f(); err != nil {
			s.log.Error("stopping", "err", err)
		}
	}
}

func (s *server) openTarget() error {
	store, err := s.openState()
	if err != nil {
		return err
	}
	t, err := target.New(target.Config{
		Limits: s.cfg.TargetLimits(), Log: s.log, Store: store, DiscoveryNQN: s.cfg.Discovery.NQN,
	})
	if err != nil {
		return err
	}
	s.target = t
	s.figures.AddTarget(t)
	s.figures.AddReady(s.readiness)
	s.onClose(func() error { s.finishing.Wait(); return nil })
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		return t.Close(ctx)
	})
	return nil
}

// openState opens the directory for persistent state; without one, nothing persists.
func (s *server) openState() (target.Store, error) {
	if s.cfg.State == "" {
		return nil, nil //nolint:nilnil // no store is a store that the target takes
	}
	d, err := statedir.Open(s.cfg.State)
	if errors.Is(err, statedir.ErrInUse) {
		return nil, cli.Say(err, "%sstate %s: another program has it open; give each a directory of its own", s.mark, s.cfg.State)
	}
	if err != nil {
		return nil, cli.CreateError(s.mark+"state", s.cfg.State, err)
	}
	s.onClose(d.Close)
	return d, nil
}

func (s *server) openCapture() error {
	if s.cfg.Pcap == "" {
		return nil
	}
	c, err := softrnic.CreateCapture(s.cfg.Pcap, "nvmetgt")
	if err != nil {
		return cli.CreateError(s.mark+"pcap", s.cfg.Pcap, err)
	}
	s.capture = c
	go s.watchCapture()
	s.onClose(func() error {
		if err := c.Close(); err != nil {
			s.incomplete = fmt.Errorf("%spcap: %w", s.mark, err)
		}
		return nil
	})
	return nil
}

// watchCapture logs when the capture can't be written any more, however long the program continues.
func (s *server) watchCapture() {
	<-s.capture.Done()
	if err := s.capture.Close(); err != nil {
		s.log.Error("the capture ends: packets from here on are left out", "err", err)
	}
}

// serveMetrics serves the figures of everything that is open, if the configuration asks for it.
func (s *server) serveMetrics() error {
	if s.cfg.Metrics == "" {
		return nil
	}
	srv, err := s.figures.Serve(s.cfg.Metrics)
	if err != nil {
		return err
	}
	s.onClose(srv.Close)
	fmt.Fprintf(&s.said, "metrics http://%s/metrics\n", srv.Addr())
	return nil
}

// announce prints what is exported, and where. The line that begins with "ready" is the last. A service manager is
// notified too. Whoever waits for the line must not wait forever, so an output that can't be written is an error.
func (s *server) announce(out io.Writer) error {
	s.describe()
	fmt.Fprintf(&s.said, "ready: %s; stop with Ctrl-C\n", s.exported())
	if _, err := s.said.WriteTo(out); err != nil {
		// As text: on a broken pipe error, the program would end without a message.
		return fmt.Errorf("standard output: %s; nobody would learn that the target is ready", cli.Cause(err).Error())
	}
	s.service.ready(s.exported(), func() { s.target.Snapshot() })
	s.onClose(s.service.close)
	return nil
}

// describe adds what is exported, and where, to the output.
func (s *server) describe() {
	s.change.Lock() // the control socket already exists
	defer s.change.Unlock()
	several := len(s.cfg.Subsystems) > 1
	for _, sub := range s.cfg.Subsystems {
		if several {
			fmt.Fprintf(&s.said, "subsystem %s\n", sub.NQN)
		}
		for _, n := range sub.Namespaces {
			info := s.exports[exportKey{sub.NQN, n.NSID}].volume.Info()
			name := info.Kind
			if info.Path != "" {
				name += " " + info.Path
			}
			fmt.Fprintf(&s.said, "namespace %d: %s, %s, blocks of %d bytes (%s)\n",
				n.NSID, name, blockdev.FormatSize(info.Size), info.BlockSize, info.Mode)
		}
	}
	for _, e := range s.cfg.Listen {
		for _, line := range s.listeners[e].said {
			fmt.Fprintln(&s.said, line)
		}
	}
}

// exported summarizes what is exported.
func (s *server) exported() string {
	s.now.Lock()
	defer s.now.Unlock()
	if len(s.cfg.Subsystems) == 1 {
		return s.cfg.Subsystems[0].NQN
	}
	return fmt.Sprintf("%d subsystems", len(s.cfg.Subsystems))
}

// closeExports closes every volume.
func (s *server) closeExports() error {
	var errs []error
	for key, e := range s.exports {
		errs = append(errs, e.close())
		s.now.Lock() // a signal may still concern the others
		delete(s.exports, key)
		s.now.Unlock()
	}
	for nqn, d := range s.pools {
		errs = append(errs, d.Close())
		delete(s.pools, nqn)
	}
	return errors.Join(errs...)
}
