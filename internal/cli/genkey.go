package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

// NewGenKey returns the command that makes a secret. Both programs have it: either side may be
// the one that makes the other's.
func NewGenKey(example string) *cobra.Command {
	var hmac uint8
	var length int
	var output string
	c := &cobra.Command{
		Use:   "gen-dhchap-key",
		Short: "Make a secret for authentication",
		Long: `gen-dhchap-key draws a secret for DH-HMAC-CHAP, of a host or of controllers, and prints
it, or writes it to a file that only you may read. It is what nvme-cli's command of that
name makes, and Linux takes it too.`,
		Example: example,
		Args:    NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			hash := nvme.AuthHash(hmac)
			if !c.Flags().Changed("key-length") && hmac > 0 {
				length = hash.Size()
			}
			s, err := dhchap.Generate(hash, length)
			switch {
			case hash > nvme.AuthSHA512:
				return Usage("--hmac %d: want 0 (none), 1 (SHA-256), 2 (SHA-384) or 3 (SHA-512)", hmac)
			case hmac > 0 && length != hash.Size(): // it would work, but nvme-cli neither makes nor takes it
				return Usage("--key-length %d with --hmac %d: want %d bytes, as many as the hash has, or --hmac 0", length, hmac, hash.Size())
			case err != nil:
				return Usage("--key-length %d: want 32, 48 or 64 bytes", length)
			case output != "":
				return CreateSecret("--output", output, s.Text()+"\n")
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), s.Text())
			return err
		},
	}
	c.Flags().Uint8VarP(&hmac, "hmac", "m", 1, "hash `function` that ties the secret to a name: 0 none, 1 SHA-256, 2 SHA-384, 3 SHA-512")
	c.Flags().IntVarP(&length, "key-length", "l", 32, "`bytes` of the secret: as many as the hash has, or with --hmac 0 32, 48 or 64")
	c.Flags().StringVar(&output, "output", "", "`FILE` to make, which must not exist (default standard output)")
	return c
}
