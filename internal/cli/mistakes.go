package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// UsageError is a mistake on the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usage makes a UsageError.
func Usage(format string, a ...any) error { return &UsageError{fmt.Errorf(format, a...)} }

// NoArgs refuses arguments, like cobra's own check, but says what to do.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s takes flags only, not %q; see %s --help", c.Name(), args[0], c.CommandPath())
	}
	return nil
}

// flagError says what is wrong with a flag, what it takes, and where to read more.
func flagError(c *cobra.Command, err error) error {
	if name := c.Flags().Arg(0); c.HasSubCommands() && name != "" {
		return unknownCommand(c, name) // the flags are meant for that command
	}
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		err = fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), wanted(bad))
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var all, shown []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			all = append(all, f.Name)
			if !f.Hidden {
				shown = append(shown, f.Name)
			}
		})
		name := unknown.GetSpecifiedName()
		if meant := cmp.Or(similar(name, shown), Nearest(name, all)); meant != "" {
			return Usage("%w; is --%s meant?", err, meant)
		}
	}
	return Usage("%w; see %s --help", err, c.CommandPath())
}

// leastName is the length from which the beginning of a name identifies the flag or command that is meant.
const leastName = 3

// dashed replaces the underscores of fio's names.
func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// similar returns the flag or command, of all, whose name differs from name in underscores alone, or begins or ends
// like it, if there is only one, or else one that is spelled almost the same; "" if there is none.
func similar(name string, all []string) string {
	if len(name) < leastName {
		return ""
	}
	var found []string
	for _, f := range all {
		if strings.HasPrefix(f, name) || strings.HasSuffix(f, "-"+name) || strings.HasPrefix(name, f+"-") {
			found = append(found, f)
		}
	}
	if i := slices.IndexFunc(all, func(f string) bool { return dashed(f) == dashed(name) }); i >= 0 {
		return all[i]
	}
	if len(found) != 1 {
		return Nearest(name, all)
	}
	return found[0]
}

// wanted describes the values that a flag takes.
func wanted(bad *pflag.InvalidValueError) string {
	switch bad.GetFlag().Value.Type() {
	case "size":
		if errors.Is(bad, blockdev.ErrTooLarge) {
			return blockdev.ErrTooLarge.Error()
		}
		return "want a size, as 4096, 64MiB or 1GiB"
	case "duration":
		return "want a time, as 500ms, 10s or 1m"
	case "int":
		return "want a whole number"
	case "intSlice":
		return "want whole numbers with commas between, as 1,4,16"
	case "uint8":
		return fmt.Sprintf("want a number from 0 to %d", math.MaxUint8)
	case "uint16":
		return fmt.Sprintf("want a number from 0 to %d", math.MaxUint16)
	case "uint32":
		return fmt.Sprintf("want a number from 0 to %d", uint32(math.MaxUint32))
	case "uint64":
		return "want a number, as 4660 or 0x1234"
	case "bool":
		return "want true or false"
	}
	return bad.Unwrap().Error()
}

// CheckNQN checks the NVMe Qualified Name in a flag.
func CheckNQN(flag, nqn string) error { return nqnUsage(flag, nvme.CheckNQN(nqn)) }

// CheckSubNQN checks the name of a subsystem to connect to in a flag.
func CheckSubNQN(flag, nqn string) error { return nqnUsage(flag, nvme.CheckSubNQN(nqn)) }

func nqnUsage(flag string, err error) error {
	if err != nil {
		return Usage("%s: %w", flag, err)
	}
	return nil
}
