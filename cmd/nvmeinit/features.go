package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// featureFlags says which feature, and which value of it.
type featureFlags struct {
	id    uint8
	nsid  uint32
	sel   uint8
	cdw11 uint32
	value uint32

	decode bool // its bit fields
}

// selects are nvme-cli's names for the values of a feature, by SEL.
var selects = []string{"Current", "Default", "Saved", "Supported capabilities"}

func newGetFeature() *cobra.Command {
	var ff featureFlags
	c := inspection{
		use: "get-feature", short: "Show features",
		long: `get-feature shows the value of a feature, or of all that the controller says it has. The
values are those of a controller that was made for this connection, but for what belongs
to a namespace.`,
		example: "  nvmeinit get-feature -t rdma -a 127.0.0.1\n" +
			"  nvmeinit get-feature -t rdma -a 127.0.0.1 --feature-id 0x07 -H\n" +
			"  nvmeinit get-feature -t tcp -a 127.0.0.1 -f 0x84 --nsid 1 --sel 3 -o json",
		bits: true,
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			ff.decode = f.decode
			if c.Flags().Changed("feature-id") {
				fs, err := s.feature(c.Context(), &ff)
				if err != nil {
					return err
				}
				return printFields(c.OutOrStdout(), f.output, fs)
			}
			return s.allFeatures(c, f, &ff)
		},
	}.command()
	fl := c.Flags()
	fl.Uint8VarP(&ff.id, "feature-id", "f", 0, "`number` of the feature, as 0x07 (default all)")
	fl.Uint32Var(&ff.nsid, "nsid", 0, "`number` of the namespace, for its features")
	fl.Uint8Var(&ff.sel, "sel", 0, "`number` of the value: 0 current, 1 default, 2 saved, 3 what can be done with it")
	fl.Uint32Var(&ff.cdw11, "cdw11", 0, "`dword` 11 of the command, for a feature with parameters")
	c.PreRunE = func(*cobra.Command, []string) error {
		if int(ff.sel) >= len(selects) {
			return cli.Usage("--sel %d: want 0 to %d", ff.sel, len(selects)-1)
		}
		return nil
	}
	return c
}

func newSetFeature() *cobra.Command {
	var ff featureFlags
	c := inspection{
		use: "set-feature", short: "Set a feature",
		long: `set-feature sets a feature, and prints nothing. What belongs to a namespace, as write
protection (0x84: 0 none, 1 protected), stays; the rest ends with this connection, for
which the controller was made.`,
		example: "  nvmeinit set-feature -t rdma -a 127.0.0.1 --feature-id 0x84 --nsid 1 --value 1\n" +
			"  nvmeinit set-feature -t tcp -a 127.0.0.1 -f 0x84 --nsid 1 -V 0",
		silent: true,
		run: func(c *cobra.Command, _ *connFlags, s *session) error {
			id := nvme.FID(ff.id)
			if n := nvme.FeatureDataSize(id, ff.value); n > 0 {
				return cli.Usage("--feature-id %#02x: %s has %d bytes of data, which this command can't give", ff.id, id, n)
			}
			if ff.nsid != 0 {
				if _, err := s.namespace(c.Context(), ff.nsid); err != nil {
					return err
				}
			}
			_, err := s.SetFeature(c.Context(), id, ff.nsid, ff.value, nil)
			return err
		},
	}.command()
	fl := c.Flags()
	fl.Uint8VarP(&ff.id, "feature-id", "f", 0, "`number` of the feature, as 0x84")
	fl.Uint32VarP(&ff.value, "value", "V", 0, "`value`: dword 11 of the command")
	fl.Uint32Var(&ff.nsid, "nsid", 0, "`number` of the namespace, for its features")
	c.PreRunE = func(c *cobra.Command, _ []string) error { return mustHave(c, "feature-id", "value") }
	return c
}

// feature reads a feature, and shows it with nvme-cli's names.
func (s *session) feature(ctx context.Context, ff *featureFlags) ([]field, error) {
	id, sel := nvme.FID(ff.id), nvme.SEL(ff.sel)
	dw11 := ff.cdw11
	if id == nvme.FeatHostID {
		dw11 |= nvme.HostIDExtended // the only form on fabrics
	}
	var data []byte
	if sel != nvme.SELSupported {
		data = make([]byte, nvme.FeatureDataSize(id, dw11))
	}
	v, err := s.Feature(ctx, id, sel, ff.nsid, dw11, data)
	if err != nil {
		return nil, err
	}
	means := featureMeaning(id, v, data)
	if sel == nvme.SELSupported {
		means = capabilities(v)
	}
	meaning := field{"meaning", means, means}
	if means == "" {
		meaning = field{"meaning", "-", nil}
	}
	value := fmt.Sprintf("0x%08x", v)
	fs := []field{{"name", id.String(), id.String()}, {selects[sel], value, value}, meaning}
	if len(data) > 0 {
		text := hex.EncodeToString(data)
		fs = append(fs, field{"data", text, text})
	}
	if ff.decode && sel != nvme.SELSupported {
		fs = append(fs, parts(featureBits[id], uint64(v))...)
	}
	return fs, nil
}

// allFeatures shows every feature that the controller says it has.
func (s *session) allFeatures(c *cobra.Command, f *connFlags, ff *featureFlags) error {
	var log nvme.FeatureEffectsLog
	if err := s.readLog(c.Context(), nvme.LogFeatureEffects, 4*len(log), &log); err != nil {
		return cli.Say(err, "%v: the controller doesn't tell which features it has; give one, as --feature-id 0x07", err)
	}
	var all object
	for id, e := range log {
		one := *ff
		one.id = uint8(id)
		if e&nvme.FeatureEffectSupported == 0 || e&nvme.FeatureScopeNamespace != 0 && ff.nsid == 0 {
			continue
		}
		if e&nvme.FeatureScopeNamespace == 0 {
			one.nsid = 0
		}
		fs, err := s.feature(c.Context(), &one)
		var refused *nvme.StatusError
		switch {
		case errors.As(err, &refused):
			name, why := nvme.FID(id).String(), refused.Status.String()
			fs = []field{{"name", name, name}, {selects[ff.sel], "-", nil}, {"meaning", why, why}}
		case err != nil:
			return err
		}
		all = append(all, field{fmt.Sprintf("feature: 0x%02x", id), "", []object{fs}})
	}
	if f.output == cli.JSON {
		return cli.PrintJSON(c.OutOrStdout(), all)
	}
	if f.decode {
		return printEach(c.OutOrStdout(), all)
	}
	v := view{none: "no features"}
	for _, one := range all {
		fs := one.value.([]object)[0]
		id := strings.TrimPrefix(one.name, "feature: ")
		v.rows = append(v.rows, object{{"fid", id, nil}, fs[0], {"value", fs[1].text, nil}, fs[2]})
	}
	return v.print(c.OutOrStdout(), f.output)
}

// printEach shows the fields of each feature, which don't fit in a table if they have parts.
func printEach(w io.Writer, features object) error {
	for _, one := range features {
		fmt.Fprintln(w, one.name)
		if err := printFields(w, cli.Normal, one.value.([]object)[0]); err != nil {
			return err
		}
	}
	return nil
}

// capabilities lists what can be done with a feature.
func capabilities(v uint32) string {
	can := setBits(v, []bitName[uint32]{
		{nvme.FeatureSaveable, "saveable"}, {nvme.FeatureNamespace, "per-namespace"}, {nvme.FeatureChangeable, "changeable"},
	})
	return cmp.Or(strings.Join(can, ", "), "fixed")
}

// featureMeaning explains the value of the features that people look at; it returns "" for others.
func featureMeaning(id nvme.FID, v uint32, data []byte) string {
	switch id {
	case nvme.FeatNumberOfQueues:
		q := nvme.QueueCounts(v)
		return fmt.Sprintf("submission queues: %d, completion queues: %d", q.SQ(), q.CQ())
	case nvme.FeatKATO:
		return (time.Duration(v) * time.Millisecond).String()
	case nvme.FeatVolatileWC:
		return onOff(v&nvme.VolatileWCEnable != 0)
	case nvme.FeatTimestamp:
		var t nvme.Timestamp
		if t.Parse(data) == nil {
			return timestampMeaning(t)
		}
	case nvme.FeatHostID:
		if len(data) == len(nvme.HostID{}) {
			return nvme.HostID(data).String()
		}
	case nvme.FeatWriteProtect:
		if names := []string{"not protected", "protected", "protected until a power cycle", "protected for ever"}; v < uint32(len(names)) {
			return names[v]
		}
	}
	return ""
}

// timestampMeaning explains the Timestamp feature, which counts from zero until a host sets it.
func timestampMeaning(t nvme.Timestamp) string {
	means := stamp(t.Millis)
	if t.Origin == 0 {
		means = fmt.Sprintf("not set: %v since a reset", time.Duration(t.Millis)*time.Millisecond)
	}
	if t.Synch {
		means += ", without times in which it may have stopped"
	}
	return means
}

func onOff(on bool) string {
	if on {
		return "enabled"
	}
	return "disabled"
}
