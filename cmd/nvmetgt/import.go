package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

func newImport() *cobra.Command {
	var secrets string
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a configuration file of one of Linux's nvmetcli",
		Long: `import reads the JSON that Linux's nvmetcli saves, and writes an equivalent configuration
file. What has no counterpart is left out, and reported on standard error. Secrets of
hosts go to a separate file.`,
		Example: `  nvmetcli save target.json
  nvmetgt import target.json > target.yaml`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			b, err := cli.Leaving(c.Context(), 0, func() ([]byte, error) { return os.ReadFile(args[0]) })
			if err != nil {
				return cli.FileError("import", args[0], err)
			}
			im, err := config.FromNVMeTCLI(args[0], b, secrets)
			if errors.Is(err, config.ErrInvalid) {
				return &cli.UsageError{Err: err}
			} else if err != nil {
				return err
			}
			for _, n := range im.Notes {
				fmt.Fprintf(c.ErrOrStderr(), "nvmetgt: note: %s\n", n)
			}
			if b, err = im.Config.Marshal(); err != nil {
				return err
			}
			if len(im.Secrets) > 0 {
				var lines strings.Builder
				for i := range im.Secrets {
					fmt.Fprintln(&lines, &im.Secrets[i])
				}
				if err := cli.CreateSecret("--secrets", secrets, lines.String()); err != nil {
					return err
				}
			}
			if _, err = c.OutOrStdout().Write(b); err != nil && len(im.Secrets) > 0 {
				_ = os.Remove(secrets) // it would prevent another attempt
			}
			return err
		},
	}
	c.Flags().StringVar(&secrets, "secrets", "", "`FILE` to make for the secrets of hosts (default they are left out)")
	return c
}
