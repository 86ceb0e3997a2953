package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkEmpty refuses flags whose value is empty, as from a shell variable that isn't set: an empty value would act like
// no flag at all, and so mean a different subsystem, say, than intended. Flags of types of their own check this
// themselves.
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
