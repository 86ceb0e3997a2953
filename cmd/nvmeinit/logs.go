package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// page is a log page of fixed size, as defined by package nvme.
type page interface{ Parse(b []byte) error }

// readLog reads a log page of the controller.
func (s *session) readLog(ctx context.Context, lid nvme.LID, size int, p page) error {
	b := make([]byte, size)
	if err := s.ReadLog(ctx, nvme.GetLogPage{LID: lid, NSID: nvme.NSIDAll, RAE: true}, b); err != nil {
		return err
	}
	return p.Parse(b)
}

// logCommand returns the command that shows a log page.
func logCommand(use, short, long string, show func(c *cobra.Command, f *connFlags, s *session) error) *cobra.Command {
	return inspection{
		use: use, short: short, long: long,
		example: fmt.Sprintf("  nvmeinit %s -t rdma -a 127.0.0.1\n  nvmeinit %s -t tcp -a 127.0.0.1 -o json", use, use),
		run:     show,
	}.command()
}

func newSmartLog() *cobra.Command {
	return inspection{
		use: "smart-log", short: "Show the SMART / health information log",
		long:    `smart-log shows what the controller counted: commands, data moved, errors, hours.`,
		example: "  nvmeinit smart-log -t rdma -a 127.0.0.1 -H\n  nvmeinit smart-log -t tcp -a 127.0.0.1 -o json",
		bits:    true,
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			log, err := s.SMART(c.Context())
			if err != nil {
				return err
			}
			return printFields(c.OutOrStdout(), f.output, f.decoded(smartFields(log)))
		},
	}.command()
}

func newANALog() *cobra.Command {
	return logCommand("ana-log", "Show the ANA states of namespaces at this controller",
		`ana-log shows the Asymmetric Namespace Access log: the groups that the subsystem's
namespaces are in, and the state of each at the endpoint that is connected to.`,
		func(c *cobra.Command, f *connFlags, s *session) error {
			log, err := s.ANA(c.Context())
			if err != nil {
				return err
			}
			return printANA(c.OutOrStdout(), f.output, s.Config().SubNQN, log)
		})
}

func newErrorLog() *cobra.Command {
	var entries int
	c := logCommand("error-log", "Show the Error Information log",
		`error-log shows the Error Information log, the newest error first: the command that
failed, its status, and the place in it, a byte (and a bit of it) of the 64 of a command.

Over fabrics most targets, nvmetgt too, make a controller for each connection, whose log
begins with it: then nothing is in it but what this connection met. nvmetgt logs what
other hosts meet with --log-level debug.`,
		func(c *cobra.Command, f *connFlags, s *session) error {
			all, err := s.ErrorLog(c.Context())
			if err != nil {
				return err
			}
			return errorView(all[:min(entries, len(all))]).print(c.OutOrStdout(), f.output)
		})
	c.Flags().IntVarP(&entries, "log-entries", "e", 64, "`number` of entries at most")
	c.PreRunE = func(*cobra.Command, []string) error {
		if entries < 1 {
			return cli.Usage("--log-entries %d: want 1 or more", entries)
		}
		return nil
	}
	return c
}

func newFirmwareLog() *cobra.Command {
	return inspection{
		use: "fw-log", short: "Show the firmware slots",
		long: `fw-log shows the Firmware Slot Information log: which revision is in each slot, and
which runs. Targets have one, which names their version.`,
		example: "  nvmeinit fw-log -t rdma -a 127.0.0.1 -H\n  nvmeinit fw-log -t tcp -a 127.0.0.1 -o json",
		bits:    true,
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			var log nvme.FirmwareLog
			if err := s.readLog(c.Context(), nvme.LogFirmware, nvme.FirmwareLogSize, &log); err != nil {
				return err
			}
			return printOf(c, f, s, firmwareFields(&log))
		},
	}.command()
}

func newSanitizeLog() *cobra.Command {
	return inspection{
		use: "sanitize-log", short: "Show the status of the last sanitize operation",
		long: `sanitize-log shows the Sanitize Status log of the subsystem: how far an operation is, how
the last one ended, and how long one takes.`,
		example: "  nvmeinit sanitize-log -t rdma -a 127.0.0.1 -H\n  nvmeinit sanitize-log -t tcp -a 127.0.0.1 -o json",
		bits:    true,
		run: func(c *cobra.Command, f *connFlags, s *session) error {
			var log nvme.SanitizeLog
			if err := s.readLog(c.Context(), nvme.LogSanitize, nvme.SanitizeLogSize, &log); err != nil {
				return err
			}
			return printOf(c, f, s, sanitizeFields(&log))
		},
	}.command()
}

// printOf shows fields that nvme-cli's JSON has below the name of what they belong to.
func printOf(c *cobra.Command, f *connFlags, s *session, fs []field) error {
	fs = f.decoded(fs)
	if f.output == cli.JSON {
		fs = []field{{s.Config().SubNQN, "", object(fs)}}
	}
	return printFields(c.OutOrStdout(), f.output, fs)
}

func newEffectsLog() *cobra.Command {
	return logCommand("effects-log", "Show the supported commands and their effects",
		`effects-log shows the Commands Supported and Effects log: the commands that the
controller takes, and what others have to expect of each: whether it alters data (LBCC),
the capacity of a namespace (NCC), which namespaces there are (NIC), or what the
controller can do (CCC).`,
		func(c *cobra.Command, f *connFlags, s *session) error {
			var log nvme.EffectsLog
			if err := s.readLog(c.Context(), nvme.LogEffects, nvme.EffectsLogSize, &log); err != nil {
				return err
			}
			return printEffects(c.OutOrStdout(), f.output, &log)
		})
}

func newSupportedLogs() *cobra.Command {
	return logCommand("supported-log-pages", "Show the supported log pages",
		`supported-log-pages shows the log pages that the controller has.`,
		func(c *cobra.Command, f *connFlags, s *session) error {
			var log nvme.SupportedLogs
			if err := s.readLog(c.Context(), nvme.LogSupported, 4*len(log), &log); err != nil {
				return err
			}
			return supportedView(&log).print(c.OutOrStdout(), f.output)
		})
}

func newFeatureEffects() *cobra.Command {
	return logCommand("fid-support-effects-log", "Show the supported features and their scopes",
		`fid-support-effects-log shows the features that the controller has, and whether a value
is that of a namespace or of the controller; nvmeinit get-feature shows the values.`,
		func(c *cobra.Command, f *connFlags, s *session) error {
			var log nvme.FeatureEffectsLog
			if err := s.readLog(c.Context(), nvme.LogFeatureEffects, 4*len(log), &log); err != nil {
				return err
			}
			return featureEffectsView(&log).print(c.OutOrStdout(), f.output)
		})
}

func newPersistentLog() *cobra.Command {
	return logCommand("persistent-event-log", "Show the Persistent Event log of the subsystem",
		`persistent-event-log shows the Persistent Event log, the newest event first: starts, new
timestamps, namespaces that hosts created or deleted, Format, Sanitize. It outlives the
program of a target that keeps it: nvmetgt does with --state.`,
		func(c *cobra.Command, f *connFlags, s *session) error {
			head, events, err := s.PersistentEvents(c.Context())
			if errors.Is(err, host.ErrUnsupported) {
				return cli.Say(err, "subsystem %s keeps no Persistent Event log (LPA is %#x); with nvmetgt it takes serve --state",
					s.Config().SubNQN, uint8(s.Identify().LPA))
			}
			if err != nil {
				return err
			}
			return persistentView(head, events).print(c.OutOrStdout(), f.output)
		})
}

// supportedView shows the Supported Log Pages log, in JSON with nvme-cli's names.
func supportedView(log *nvme.SupportedLogs) *view {
	v := &view{list: "supported_logs", none: "no log pages"}
	for lid, support := range log {
		if support&nvme.LogIsSupported == 0 {
			continue
		}
		l := nvme.LID(lid)
		v.rows = append(v.rows, object{
			{"lid", fmt.Sprintf("%02xh", lid), nil}, {"log page", l.String(), nil},
			{fmt.Sprintf("lid_0x%x ", lid), "", support},
		})
	}
	return v
}

// featureEffectsView shows the Feature Identifiers Supported and Effects log, in JSON with nvme-cli's names.
func featureEffectsView(log *nvme.FeatureEffectsLog) *view {
	v := &view{list: "fid_support", none: "no features"}
	for fid, e := range log {
		if e&nvme.FeatureEffectSupported == 0 {
			continue
		}
		scope := "-"
		switch {
		case e&nvme.FeatureScopeNamespace != 0:
			scope = "namespace"
		case e&nvme.FeatureScopeController != 0:
			scope = "controller"
		}
		v.rows = append(v.rows, object{
			{"fid", fmt.Sprintf("%02xh", fid), nil}, {"feature", nvme.FID(fid).String(), nil}, {"scope", scope, nil},
			{fmt.Sprintf("fid_%d", fid), "", uint32(e)},
		})
	}
	return v
}

// errorView shows the Error Information log.
func errorView(all []nvme.ErrorEntry) *view {
	v := &view{list: "errors", none: "no errors"}
	for i := range all {
		e := &all[i]
		v.rows = append(v.rows, object{
			number("error_count", e.Count), number("sqid", e.SQID), number("cmdid", e.CID),
			{"status_field", fmt.Sprintf("%#x (%s)", uint16(e.Status()), e.Status()), uint16(e.Status())},
			{"phase_tag", "", e.StatusPhase & 1},
			{"parm_error_location", place(e.Location), e.Location},
			number("lba", e.LBA), {"nsid", fmt.Sprintf("%#x", e.NSID), e.NSID}, {"vs", "", e.Vendor},
			{"trtype", fmt.Sprint(uint8(e.TRTYPE)), uint8(e.TRTYPE)}, {"cs", "", e.Specific}, {"trtype_spec_info", "", e.TransportSpecific},
		})
	}
	return v
}

// place formats a Parameter Error Location: a byte of the command, and a bit in it.
func place(location uint16) string {
	const none = 0xffff
	if location == none {
		return "-"
	}
	return fmt.Sprintf("byte %d, bit %d", location&0xff, location>>8&7)
}

// activeSlot is nvme-cli's name for AFI.
const activeSlot = "Active Firmware Slot (afi)"

// firmwareFields returns the fields of the Firmware Slot Information log.
func firmwareFields(log *nvme.FirmwareLog) []field {
	fs := []field{hexadecimal(activeSlot, log.AFI)}
	for i, rev := range log.FRS {
		if text := nvme.Text(rev[:]); text != "" {
			fs = append(fs, field{fmt.Sprintf("Firmware Rev Slot %d", i+1), text, text})
		}
	}
	return fs
}

// sanitizeFields returns the fields of the Sanitize Status log.
func sanitizeFields(log *nvme.SanitizeLog) []field {
	const unknown = 0xffffffff
	seconds := func(name string, n uint32) field {
		if n == unknown {
			return field{name, "not reported", n}
		}
		return field{name, fmt.Sprintf("%d s", n), n}
	}
	progress := "not in progress"
	if log.SSTAT.State() == nvme.SanitizeInProgress {
		progress = fmt.Sprintf("%d of 65536 (%.1f%%)", log.SPROG, float64(log.SPROG)*100/65536)
	}
	return []field{
		{"sprog", progress, log.SPROG},
		{"status", log.SSTAT.String(), nil}, {"completed_passes", fmt.Sprint(log.SSTAT.Passes()), nil},
		{"sstat", fmt.Sprintf("%#x", uint16(log.SSTAT)), sanitizeStatus(log.SSTAT)},
		hexadecimal("cdw10_info", log.SCDW10),
		seconds("time_over_write", log.OverwriteTime), seconds("time_block_erase", log.BlockEraseTime),
		seconds("time_crypto_erase", log.CryptoEraseTime),
		seconds("time_over_write_no_dealloc", log.OverwriteTimeND), seconds("time_block_erase_no_dealloc", log.BlockEraseTimeND),
		seconds("time_crypto_erase_no_dealloc", log.CryptoEraseTimeND),
	}
}

// sanitizeStatus is SSTAT, a number for people and an object in nvme-cli's JSON.
type sanitizeStatus nvme.SanitizeStatus

// MarshalJSON implements json.Marshaler.
func (s sanitizeStatus) MarshalJSON() ([]byte, error) {
	status := nvme.SanitizeStatus(s)
	return object{
		number("global_erased", uint16(s)>>8&1), number("no_cmplted_passes", status.Passes()),
		{"status", "", fmt.Sprintf("(%d) %s", uint16(status.State()), status)},
	}.MarshalJSON()
}

// persistentView shows the Persistent Event log.
func persistentView(h *nvme.PersistentLogHeader, events []nvme.PersistentEvent) *view {
	v := &view{
		head: object{
			{"log_id", "", uint8(h.LID)}, number("total_num_of_events", h.Events), number("total_log_len", h.Length),
			{"log_revision", "", h.Revision}, {"log_header_len", "", h.HeaderLength},
			{"timestamp", stamp(h.Timestamp), h.Timestamp}, big("power_on_hours", h.PowerOnHours), number("power_cycle_count", h.PowerCycles),
			{"pci_vid", "", h.VID}, {"pci_ssvid", "", h.SSVID},
			{"sn", "", nvme.Text(h.SN[:])}, {"mn", "", nvme.Text(h.MN[:])}, {"subnqn", nvme.Text(h.SUBNQN[:]), nvme.Text(h.SUBNQN[:])},
			{"gen_number", "", h.Generation}, {"rci", "", h.ReportingContext},
		},
		list: "list_of_event_entries", none: "no events",
	}
	for i := range events {
		e := &events[i]
		v.rows = append(v.rows, append(object{
			{"event_number", "", i}, {"event_time_stamp", stamp(e.Timestamp), e.Timestamp}, {"event_type", e.Type.String(), e.Type.String()},
			{"event_type_rev", "", e.Revision}, {"ctrl_id", fmt.Sprint(e.CNTLID), e.CNTLID},
		}, eventDetail(e)...))
	}
	return v
}
