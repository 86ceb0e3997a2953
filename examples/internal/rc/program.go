package rc

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"os/signal"
)

// Sides says which side a program is: it waits at Bind for a client, or connects to Server.
type Sides struct {
	Bind, Server netip.Addr
	port         uint // of the server
}

// Flags starts the command line of a program: errors and usage go to errs. kind says of what the server's port is.
func (s *Sides) Flags(name, usage, kind string, port uint, errs io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() {
		fmt.Fprint(errs, usage)
		f.PrintDefaults()
	}
	f.TextVar(&s.Bind, "bind", netip.Addr{}, "own `address`; a client finds one by itself")
	f.UintVar(&s.port, "port", port, kind+" `port` of the server")
	return f
}

// Parse takes the server from the arguments after the flags, if there is one.
func (s *Sides) Parse(args []string) (err error) {
	if len(args) > 0 {
		if s.Server, err = netip.ParseAddr(args[0]); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	switch {
	case len(args) > 1:
		return fmt.Errorf("one server, not %q", args)
	case !s.Bind.IsValid() && !s.Server.IsValid():
		return errors.New("give -bind and the own address to wait for a client, or a server's address (see --help)")
	case s.port == 0 || s.port > math.MaxUint16:
		return fmt.Errorf("port %d: want 1 to %d", s.port, math.MaxUint16)
	}
	return nil
}

// Addr returns where a server waits, and a client connects to.
func (s *Sides) Addr() netip.AddrPort {
	if s.Server.IsValid() {
		return netip.AddrPortFrom(s.Server, uint16(s.port))
	}
	return netip.AddrPortFrom(s.Bind, uint16(s.port))
}

// Main is the main function of a program: it runs run with the options that parse returns.
func Main[O any](name string, parse func(args []string, errs io.Writer) (O, error), run func(context.Context, O, io.Writer) error) {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = run(ctx, o, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
