package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// resvFlags holds the fields of reservation commands, with nvme-cli's names.
type resvFlags struct {
	current, other      uint64
	kind, action, cptpl uint8
	ignoreKey           bool
}

// Limits of the fields.
const (
	lastRegister = uint8(nvme.ResvReplace)
	lastAcquire  = uint8(nvme.ResvPreemptAndAbort)
	lastRelease  = uint8(nvme.ResvClear)
)

func newResvRegister() *cobra.Command {
	f := &resvFlags{}
	c := f.command("resv-register", "Register this host with a namespace",
		`resv-register registers this host with a namespace under a key, takes that back, or
replaces the key. A registration is that of the host, by its identifier, and stays when
the connection ends; with --cptpl 3 also when power fails, where the target keeps it, as
nvmetgt does with --state. It prints nothing.`,
		"  nvmeinit resv-register -t rdma -a 127.0.0.1 --nrkey 0x1234\n"+
			"  nvmeinit resv-register -t tcp -a 127.0.0.1 --crkey 0x1234 --rrega 1",
		func(ctx context.Context, ns *host.Namespace) error {
			err := ns.ReservationRegister(ctx, nvme.ResvAction(f.action), f.keys(), f.ignoreKey, nvme.CPTPL(f.cptpl))
			if errors.Is(err, nvme.StatusInvalidField) && nvme.CPTPL(f.cptpl) == nvme.CPTPLSet {
				return forgotten(ctx, ns, err)
			}
			return err
		})
	fl := c.Flags()
	fl.Uint64Var(&f.other, "nrkey", 0, "new `key`")
	fl.Uint8Var(&f.action, "rrega", 0, "`number` of the action: 0 register, 1 unregister, 2 replace the key")
	fl.BoolVar(&f.ignoreKey, "iekey", false, "don't compare the current key")
	fl.Uint8Var(&f.cptpl, "cptpl", 0, "`number` of the change to persistence through power loss: 0 none, 2 off, 3 on")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if f.cptpl != uint8(nvme.CPTPLKeep) && f.cptpl != uint8(nvme.CPTPLClear) && f.cptpl != uint8(nvme.CPTPLSet) {
			return cli.Usage("--cptpl %d: want 0, 2 or 3", f.cptpl)
		}
		if nvme.ResvAction(f.action) != nvme.ResvUnregister && f.action <= lastRegister && !c.Flags().Changed("nrkey") {
			return cli.Usage("no --nrkey given: want the key that this host is to have, as --nrkey 0x1234")
		}
		return upTo("rrega", f.action, lastRegister)
	}
	return c
}

// forgotten says, instead of err, if the namespace's registrations can't outlast a loss of power.
func forgotten(ctx context.Context, ns *host.Namespace, err error) error {
	info, failed := ns.Controller().NamespaceInfo(ctx, ns.ID)
	if failed != nil || info.Identity.RESCAP&nvme.RESCAPPersist != 0 {
		return err
	}
	return cli.Say(err, "--cptpl %d: registrations with namespace %d don't outlast a loss of power (RESCAP is %#x); with nvmetgt it takes serve --state",
		nvme.CPTPLSet, ns.ID, uint8(info.Identity.RESCAP))
}

func newResvAcquire() *cobra.Command {
	f := &resvFlags{}
	c := f.command("resv-acquire", "Reserve a namespace",
		`resv-acquire acquires a reservation of a namespace for this host, which resv-register has
registered, or preempts that of others, and prints nothing. The reservation outlives the
connection. The types are 1 write exclusive and 2 exclusive access, for one host; 3 and 4
the same for all registrants, held by one; 5 and 6 the same, held by all.`,
		"  nvmeinit resv-acquire -t rdma -a 127.0.0.1 --crkey 0x1234 --rtype 3\n"+
			"  nvmeinit resv-acquire -t tcp -a 127.0.0.1 --crkey 0x1234 --rtype 1 --racqa 1 --prkey 0x5678",
		func(ctx context.Context, ns *host.Namespace) error {
			return ns.ReservationAcquire(ctx, nvme.ResvAction(f.action), nvme.ResvType(f.kind), f.keys())
		})
	fl := c.Flags()
	fl.Uint64Var(&f.other, "prkey", 0, "`key` of the registrants to preempt")
	fl.Uint8Var(&f.action, "racqa", 0, "`number` of the action: 0 acquire, 1 preempt, 2 preempt and abort")
	fl.Uint8Var(&f.kind, "rtype", 0, "`type` of the reservation, 1 to 6")
	c.PreRunE = func(*cobra.Command, []string) error {
		if err := f.checkType(); err != nil {
			return err
		}
		return upTo("racqa", f.action, lastAcquire)
	}
	return c
}

func newResvRelease() *cobra.Command {
	f := &resvFlags{}
	c := f.command("resv-release", "Release the reservation of a namespace",
		`resv-release releases the reservation of a namespace that this host holds, or clears
everybody's registration and the reservation. It prints nothing.`,
		"  nvmeinit resv-release -t rdma -a 127.0.0.1 --crkey 0x1234 --rtype 3\n"+
			"  nvmeinit resv-release -t tcp -a 127.0.0.1 --crkey 0x1234 --rrela 1",
		func(ctx context.Context, ns *host.Namespace) error {
			return ns.ReservationRelease(ctx, nvme.ResvAction(f.action), nvme.ResvType(f.kind), f.current)
		})
	fl := c.Flags()
	fl.Uint8Var(&f.action, "rrela", 0, "`number` of the action: 0 release, 1 clear")
	fl.Uint8Var(&f.kind, "rtype", 0, "`type` of the reservation to release, 1 to 6")
	c.PreRunE = func(*cobra.Command, []string) error {
		if nvme.ResvAction(f.action) == nvme.ResvRelease {
			if err := f.checkType(); err != nil {
				return err
			}
		}
		return upTo("rrela", f.action, lastRelease)
	}
	return c
}

// command returns a reservation command, without its specific flags.
func (f *resvFlags) command(use, short, long, example string, run func(context.Context, *host.Namespace) error) *cobra.Command {
	c := inspection{
		use: use, short: short, long: long, example: example, silent: true, lasting: true,
		runOnNS: func(c *cobra.Command, _ *connFlags, ns *host.Namespace) error {
			return run(c.Context(), ns)
		},
	}.command()
	c.Flags().Uint64Var(&f.current, "crkey", 0, "current `key` of this host")
	return c
}

func (f *resvFlags) keys() nvme.ResvKeys { return nvme.ResvKeys{Current: f.current, Other: f.other} }

func (f *resvFlags) checkType() error {
	if !nvme.ResvType(f.kind).Valid() {
		return cli.Usage("--rtype %d: want 1 to 6", f.kind)
	}
	return nil
}

func newResvReport() *cobra.Command {
	return inspection{
		use: "resv-report", short: "Show who has reserved a namespace",
		long: `resv-report shows which hosts have registered with a namespace, which of them holds a
reservation, and of what type.`,
		example: "  nvmeinit resv-report -t rdma -a 127.0.0.1 --nsid 1\n  nvmeinit resv-report -t tcp -a 127.0.0.1 -o json",
		runOnNS: func(c *cobra.Command, f *connFlags, ns *host.Namespace) error {
			st, err := ns.Reservations(c.Context())
			if err != nil {
				return err
			}
			return reservationView(st).print(c.OutOrStdout(), f.output)
		},
	}.command()
}

// reservationView shows the Reservation Status, in its extended form.
func reservationView(st *nvme.ResvStatus) *view {
	bit := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	kind := "none"
	if st.Type != 0 {
		kind = st.Type.String()
	}
	v := &view{
		head: object{
			number("gen", st.Generation), {"rtype", fmt.Sprintf("%d (%s)", st.Type, kind), uint8(st.Type)},
			number("regctl", len(st.Registrants)), number("ptpls", bit(st.Persist)),
		},
		list: "regctlext", none: "nobody has registered",
	}
	for i := range st.Registrants {
		r := &st.Registrants[i]
		holds := "-"
		if r.Holder {
			holds = "yes"
		}
		v.rows = append(v.rows, object{
			hexadecimal("cntlid", r.CNTLID), {"holds it", holds, nil}, {"rcsts", "", bit(r.Holder)},
			{"rkey", fmt.Sprintf("%#x", r.Key), r.Key}, {"hostid", r.HostID.String(), hex.EncodeToString(r.HostID[:])},
		})
	}
	return v
}
