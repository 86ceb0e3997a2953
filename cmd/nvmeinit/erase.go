package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func newFormat() *cobra.Command {
	var nsid uint32
	var lbaf, ses uint8
	c := inspection{
		use: "format", short: "Format a namespace: everything that it holds is lost",
		long: `format formats a namespace (Format NVM), and ends when that is done. Everything that the
namespace holds is lost. It prints nothing.`,
		example: "  nvmeinit format -t rdma -a 127.0.0.1 --nsid 1\n  nvmeinit format -t tcp -a 127.0.0.1 --nsid 1 --lbaf 0 --ses 1",
		silent:  true,
		run: func(c *cobra.Command, _ *connFlags, s *session) error {
			if !c.Flags().Changed("lbaf") {
				var id nvme.IdentifyNamespace
				if err := readIdentify(c.Context(), s.Controller, nvme.CNSNamespace, nsid, &id); err != nil {
					return err
				}
				lbaf = uint8(id.Format())
			}
			err := s.Format(c.Context(), nsid, int(lbaf), nvme.SecureErase(ses))
			if errors.Is(err, nvme.StatusInvalidFormat) {
				return cli.Say(err, "%v; nvmeinit id-ns --nsid %d lists the formats that the namespace can have", err, nsid)
			}
			return err
		},
	}.command()
	fl := c.Flags()
	fl.Uint32Var(&nsid, "nsid", 0, "`number` of the namespace")
	fl.Uint8Var(&lbaf, "lbaf", 0, "`number` of its LBA format from now on (default the one that it has)")
	fl.Uint8Var(&ses, "ses", 0, "`number` of the secure erase: 0 none, 1 user data, 2 cryptographic")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := mustHave(c, "nsid"); err != nil {
			return err
		}
		if err := upTo("lbaf", lbaf, lastLBAFormat); err != nil {
			return err
		}
		return upTo("ses", ses, uint8(nvme.EraseCrypto))
	}
	return c
}

// lastLBAFormat is the highest number of an LBA format.
const lastLBAFormat = uint8(len(nvme.IdentifyNamespace{}.LBAF) - 1)

// sanitizeFlags holds the fields of Sanitize, with nvme-cli's names.
type sanitizeFlags struct {
	action, passes uint8
	pattern        uint32
	unrestricted   bool
	invert, keep   bool
}

func newSanitize() *cobra.Command {
	f := &sanitizeFlags{}
	c := inspection{
		use: "sanitize", short: "Erase every namespace of the subsystem",
		long: `sanitize starts an operation that erases every namespace of the subsystem, and prints
nothing. The operation continues after the command has ended, and can't be stopped:
nvmeinit sanitize-log shows its progress. Until it has succeeded the target executes no
I/O commands.`,
		example: "  nvmeinit sanitize -t rdma -a 127.0.0.1 --sanact 2\n" +
			"  nvmeinit sanitize -t tcp -a 127.0.0.1 --sanact 3 --owpass 2 --ovrpat 0x5a5a5a5a --oipbp",
		silent: true,
		run: func(c *cobra.Command, _ *connFlags, s *session) error {
			return s.Sanitize(c.Context(), nvme.SanitizeAction(f.action), f.bits(), int(f.passes), f.pattern)
		},
	}.command()
	fl := c.Flags()
	fl.Uint8Var(&f.action, "sanact", 0, "`number` of the action: 1 exit failure mode, 2 block erase, 3 overwrite, 4 cryptographic erase")
	fl.BoolVar(&f.unrestricted, "ause", false, "if the operation fails, allow action 1 to exit failure mode")
	fl.BoolVar(&f.keep, "no-dealloc", false, "don't deallocate the blocks afterwards")
	fl.Uint8Var(&f.passes, "owpass", 1, "`number` of passes of an overwrite, 1 to 16")
	fl.Uint32Var(&f.pattern, "ovrpat", 0, "32-bit `pattern` of an overwrite")
	fl.BoolVar(&f.invert, "oipbp", false, "invert the pattern of an overwrite between passes")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return f.check(c) }
	return c
}

// check rejects fields that don't go together.
func (f *sanitizeFlags) check(c *cobra.Command) error {
	if err := mustHave(c, "sanact"); err != nil {
		return err
	}
	if f.action < uint8(nvme.SanitizeExitFailure) || f.action > uint8(nvme.SanitizeCryptoErase) {
		return cli.Usage("--sanact %d: want 1 to 4", f.action)
	}
	if f.passes < 1 || f.passes > 16 {
		return cli.Usage("--owpass %d: want 1 to 16", f.passes)
	}
	if nvme.SanitizeAction(f.action) == nvme.SanitizeOverwrite {
		return nil
	}
	for _, name := range []string{"owpass", "ovrpat", "oipbp"} {
		if c.Flags().Changed(name) {
			return cli.Usage("--%s: it is for an overwrite, --sanact %d", name, nvme.SanitizeOverwrite)
		}
	}
	return nil
}

// bits returns the fields of one bit each.
func (f *sanitizeFlags) bits() (b uint32) {
	if f.unrestricted {
		b |= nvme.SanitizeAUSE
	}
	if f.invert {
		b |= nvme.SanitizeOIPBP
	}
	if f.keep {
		b |= nvme.SanitizeNDAS
	}
	return b
}
