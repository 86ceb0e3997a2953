package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkEmpty refuses flags whose value is empty, as of a shell's variable that isn't set: it would stand for no flag at
// all, and so for another subsystem, say, than the one that was meant. Flags of types of their own see to it themselves.
func checkEmpty(c *cobra.Command, _ []string) error {
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && isEmpty(f.Value) {
			err = Usage("--%s: it is empty; give it a value, or leave the flag out", f.Name)
		}
	})
	return err
}

func isEmpty(v pflag.Value) bool {
	switch v.Type() {
	case "string":
		return v.String() == ""
	case "stringArray", "stringSlice":
		all := v.(pflag.SliceValue).GetSlice()
		return len(all) == 0 || slices.Contains(all, "")
	}
	return false
}
