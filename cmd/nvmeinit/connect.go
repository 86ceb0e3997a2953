package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func newConnect() *cobra.Command {
	f := &connFlags{}
	var hold bool
	c := &cobra.Command{
		Use:   "connect -t TRANSPORT -a ADDRESS",
		Short: "Check that connecting works, and show what is there",
		Long: `connect connects to a subsystem as a host does, shows the controller, the limits
agreed, the namespaces and the round-trip time, and disconnects.

With --hold it stays connected, with keep-alive, and shows a live line of figures
until it is interrupted or the connection is lost, which is an error: it watches one
connection and doesn't reconnect. It reports the controller's notices, such as of
namespaces that change. connect-all --hold reconnects, and uses every path. Signal HUP
makes connect read the files of its secrets again, and authenticate again.`,
		Example: `  nvmeinit connect -t rdma -a 127.0.0.1
  nvmeinit connect -t tcp -a 127.0.0.1 -i 4 -Q 64 -k 10 --hold`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			n := make(notices, mostNotices)
			s, err := f.connect(c.Context(), n.subscribe)
			if err != nil {
				return err
			}
			defer closing(s, &err)
			unusable, err := showConnection(c, f, s)
			if err != nil || !hold {
				return errors.Join(err, unusable)
			}
			if unusable != nil {
				fmt.Fprintln(c.ErrOrStderr(), unusable)
			}
			return f.hold(c.Context(), c.ErrOrStderr(), s, n)
		},
	}
	c.Flags().BoolVar(&hold, "hold", false, "stay connected until interrupted or the connection is lost")
	f.addOutput(c)
	f.add(c, true)
	return c
}

// found is what connect shows.
type found struct {
	Transport   string           `json:"transport"`
	Remote      string           `json:"traddr"`
	Local       string           `json:"host_traddr"`
	SubNQN      string           `json:"subnqn"`
	HostNQN     string           `json:"hostnqn"`
	CNTLID      uint16           `json:"cntlid"`
	Model       string           `json:"model"`
	Serial      string           `json:"serial"`
	Firmware    string           `json:"firmware"`
	Version     string           `json:"version"`
	Queues      int              `json:"nr_io_queues"`
	QueueSize   int              `json:"queue_size"`
	MaxTransfer int              `json:"max_transfer"`
	InCapsule   int              `json:"in_capsule"`
	KATO        float64          `json:"keep_alive_tmo"`
	RoundTrip   float64          `json:"round_trip_us"`
	Namespaces  []foundNamespace `json:"namespaces"`
}

type foundNamespace struct {
	NSID  uint32 `json:"nsid"`
	Size  int64  `json:"size"`
	Block int    `json:"block_size"`
	UUID  string `json:"uuid,omitempty"`
}

// showConnection shows the connection, and also returns why existing namespaces can't be used.
func showConnection(c *cobra.Command, f *connFlags, s *session) (unusable, err error) {
	all, unusable := s.Namespaces(c.Context())
	switch {
	case errors.Is(unusable, host.ErrUnsupported): // from a discovery controller, which can also be connected to
		unusable = nil
	case all == nil:
		return nil, unusable
	}
	rtt, err := roundTrip(c.Context(), s)
	if err != nil {
		return nil, err
	}
	id, limits, cfg := s.Identify(), s.Limits(), s.Config()
	v := found{
		Transport: s.fabric.Type().String(), Remote: s.Remote().String(), Local: s.Admin().Local().String(),
		SubNQN: cfg.SubNQN, HostNQN: cfg.HostNQN, CNTLID: s.CNTLID(),
		Model: id.ModelNumber(), Serial: id.SerialNumber(), Firmware: id.FirmwareRevision(), Version: s.Version().String(),
		Queues: limits.Queues, QueueSize: limits.QueueSize, MaxTransfer: limits.MaxTransfer, InCapsule: limits.InCapsule,
		KATO: limits.KATO.Seconds(), RoundTrip: float64(rtt) / float64(time.Microsecond),
		Namespaces: []foundNamespace{},
	}
	for _, n := range all {
		v.Namespaces = append(v.Namespaces, foundNamespace{n.ID, n.Size(), n.BlockSize(), uuidText(n)})
	}
	if f.output == cli.JSON {
		return unusable, cli.PrintJSON(c.OutOrStdout(), v)
	}
	printFound(c.OutOrStdout(), &v)
	return unusable, nil
}

func printFound(w io.Writer, v *found) {
	fmt.Fprintf(w, "connected to %s\n", v.SubNQN)
	fmt.Fprintf(w, "  path        %s, %s → %s\n", v.Transport, v.Local, v.Remote)
	fmt.Fprintf(w, "  controller  %d: %s, serial %s, firmware %s, NVMe %s\n", v.CNTLID, v.Model, v.Serial, v.Firmware, v.Version)
	fmt.Fprintf(w, "  queues      %d of %d entries\n", v.Queues, v.QueueSize)
	keepAlive := "no keep alive"
	if v.KATO > 0 {
		keepAlive = fmt.Sprintf("keep alive %gs", v.KATO)
	}
	fmt.Fprintf(w, "  limits      %s a command, %s of it in the capsule; %s\n",
		humanize.IBytes(uint64(v.MaxTransfer)), humanize.IBytes(uint64(v.InCapsule)), keepAlive)
	for _, n := range v.Namespaces {
		printFoundNamespace(w, &n)
	}
	fmt.Fprintf(w, "  round trip  %.1f µs (median of %d commands)\n", v.RoundTrip, roundTrips)
}

func printFoundNamespace(w io.Writer, n *foundNamespace) {
	fmt.Fprintf(w, "  namespace   %d: %s, blocks of %d bytes", n.NSID, blockdev.FormatSize(n.Size), n.Block)
	if n.UUID != "" {
		fmt.Fprintf(w, ", UUID %s", n.UUID)
	}
	fmt.Fprintln(w)
}

// roundTrips is how many commands roundTrip sends, one at a time.
const roundTrips = 21

// roundTrip returns the median time of a command that moves no data and touches no volume.
func roundTrip(ctx context.Context, s *session) (time.Duration, error) {
	var took []time.Duration
	for range roundTrips {
		one, err := s.Ping(ctx)
		if err != nil {
			return 0, err
		}
		took = append(took, one)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// hold keeps the connection until ctx ends or the controller is lost, and shows figures and notices. On SIGHUP it
// reads the secrets again, and reauthenticates.
func (f *connFlags) hold(ctx context.Context, w io.Writer, s *session, n notices) error {
	hangup := f.secrets.onHangup(ctx)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	live := rewrites(w)
	told := newStory()
	say := func(what string) {
		if what == "" {
			return
		}
		if live {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s %s\n", time.Now().Format(time.TimeOnly), what)
	}
	defer func() { say(told.rest()) }()
	fmt.Fprintln(w, "holding the connection; stop with Ctrl-C")
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			if live {
				fmt.Fprintln(w)
			}
			return nil
		case <-s.Done():
			return s.Err()
		case <-hangup:
			if err := f.reauthenticate(ctx, w, s); err != nil {
				return err
			}
			continue
		case what := <-n:
			say(told.tell(what))
			continue
		case <-tick.C:
			say(told.rest())
		}
		if !live {
			continue
		}
		rtt, err := roundTrip(ctx, s)
		if err != nil {
			continue // Done reports the loss
		}
		fmt.Fprint(cli.Transient(w), "\r\033[K", fitted(fmt.Sprintf("  connected for %s, keep alives %d, round trip %.1f µs",
			time.Since(began).Round(time.Second), s.Counters().KeepAlives.Load(), float64(rtt)/float64(time.Microsecond)), columns(w)))
	}
}
