package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// controllerFields returns the fields of the Identify Controller page, with nvme-cli's names and values.
func controllerFields(id *nvme.IdentifyController) []field {
	fs := fields(id)
	states := []object{}
	for i := range id.PSD[:min(int(id.NPSS)+1, len(id.PSD))] {
		states = append(states, powerState(&id.PSD[i]))
	}
	return append(fs, field{"psds", "", states})
}

// powerState returns a power state descriptor in nvme-cli's form.
func powerState(p *nvme.PowerState) object {
	const (
		scaled         = 1 << 0 // MXPS
		nonOperational = 1 << 1 // NOPS
		scaleShift     = 6      // of IPS and APS
		workload       = 7      // APW
		timeScale      = 0xf    // of EPFRT and EPFVT
		upperScale     = 4      // of FQVT
	)
	return object{
		number("max_power", p.MP), number("max_power_scale", p.Flags&scaled), number("non-operational_state", p.Flags&nonOperational>>1),
		number("entry_lat", p.ENLAT), number("exit_lat", p.EXLAT),
		number("read_tput", p.RRT), number("read_lat", p.RRL), number("write_tput", p.RWT), number("write_lat", p.RWL),
		number("idle_power", p.IDLP), number("idle_scale", p.IPS>>scaleShift),
		number("active_power", p.ACTP), number("active_power_work", p.APWS&workload), number("active_scale", p.APWS>>scaleShift),
		number("emerg_power_fail_recover_time", p.EPFRT), number("emerg_power_fail_recover_scale", p.EPFRFQVTS&timeScale),
		number("force_quiesce_vault_time", p.FQVT), number("force_quiesce_vault_scale", p.EPFRFQVTS>>upperScale),
		number("emerg_power_fail_vault_time", p.EPFVT), number("emerg_power_fail_vault_scale", p.EPFVTS&timeScale),
	}
}

// namespaceFields returns the fields of the Identify Namespace page, with nvme-cli's names and values, and their
// meaning in bytes.
func namespaceFields(id *nvme.IdentifyNamespace) []field {
	fs := fields(id)
	formats := []object{}
	for i, f := range id.Formats() {
		inUse, used := 0, ""
		if i == id.Format() {
			inUse, used = 1, "(in use)"
		}
		formats = append(formats, object{
			number("lbaf", i), number("ms", f.MS), number("ds", f.LBADS), number("rp", f.RP), number("in_use", inUse),
		})
		fs = append(fs, field{fmt.Sprintf("lbaf %2d", i), fmt.Sprintf("ms:%-3d lbads:%-2d rp:%#x %s", f.MS, f.LBADS, f.RP, used), nil})
	}
	size := int64(id.NSZE) * int64(id.BlockSize())
	return append(fs, field{"lbafs", "", formats}, field{"vs", "", vendorText(id.VendorSpecific[:])}, field{"size", blockdev.FormatSize(size), size}, number("block_size", id.BlockSize()))
}

// vendorText returns the vendor's bytes as nvme-cli's JSON has them: up to the first zero, in rows of 16 characters, with
// dots for what can't be printed.
func vendorText(b []byte) []string {
	b, _, _ = bytes.Cut(b, []byte{0})
	rows := []string{}
	for row := range slices.Chunk(bytes.Clone(b), 16) {
		for i, c := range row {
			if c < '!' || c > '~' {
				row[i] = '.'
			}
		}
		rows = append(rows, string(row))
	}
	return rows
}

// big returns a field of 128 bits.
func big(name string, n nvme.Uint128) field { return field{name, n.String(), json.Number(n.String())} }

// smartFields returns the fields of the SMART log with nvme-cli's JSON names.
func smartFields(l *nvme.SMARTLog) []field {
	fs := []field{
		{"critical_warning", fmt.Sprintf("%#x", uint8(l.CriticalWarning)), uint8(l.CriticalWarning)},
		{"temperature", fmt.Sprintf("%d K", l.Kelvin()), l.Kelvin()},
		number("avail_spare", l.AvailableSpare),
		number("spare_thresh", l.SpareThreshold),
		number("percent_used", l.PercentageUsed),
		number("endurance_grp_critical_warning_summary", l.EnduranceWarning),
		big("data_units_read", l.DataUnitsRead),
		big("data_units_written", l.DataUnitsWritten),
		big("host_read_commands", l.HostReads),
		big("host_write_commands", l.HostWrites),
		big("controller_busy_time", l.BusyTime),
		big("power_cycles", l.PowerCycles),
		big("power_on_hours", l.PowerOnHours),
		big("unsafe_shutdowns", l.UnsafeShutdowns),
		big("media_errors", l.MediaErrors),
		big("num_err_log_entries", l.ErrorLogEntries),
		number("warning_temp_time", l.WarningTempTime),
		number("critical_comp_time", l.CriticalTempTime),
	}
	for i, kelvin := range l.Sensors {
		if kelvin != 0 {
			fs = append(fs, field{fmt.Sprintf("temperature_sensor_%d", i+1), fmt.Sprintf("%d K", kelvin), kelvin})
		}
	}
	return append(fs,
		number("thm_temp1_trans_count", l.TMT1Transitions), number("thm_temp2_trans_count", l.TMT2Transitions),
		number("thm_temp1_total_time", l.TMT1Time), number("thm_temp2_total_time", l.TMT2Time))
}

// printANA shows the ANA log, in JSON with nvme-cli's names, which include a device.
func printANA(w io.Writer, format cli.Format, nqn string, log *nvme.ANALog) error {
	if format == cli.JSON {
		groups := []object{}
		for i := range log.Groups {
			g := &log.Groups[i]
			ids := []object{}
			for _, nsid := range g.NSIDs {
				ids = append(ids, object{number("nsid", nsid)})
			}
			groups = append(groups, object{
				number("grpid", g.ID), number("nnsids", len(g.NSIDs)), number("chgcnt", g.ChangeCount),
				field{"state", "", g.State.String()}, field{"NSIDS", "", ids},
			})
		}
		return cli.PrintJSON(w, object{
			field{"Asymmetric Namespace Access Log for NVMe device", "", nqn},
			number("chgcnt", log.ChangeCount), number("ngrps", len(log.Groups)), field{"ANA DESC LIST ", "", groups},
		})
	}
	fmt.Fprintf(w, "%s, change count %d\n", english.Plural(len(log.Groups), "group", ""), log.ChangeCount)
	if len(log.Groups) == 0 {
		return nil
	}
	t := cli.NewTable(w, "group", "state", "changes", "namespaces")
	for i := range log.Groups {
		g := &log.Groups[i]
		t.AppendRow([]any{g.ID, g.State, g.ChangeCount, strings.Trim(fmt.Sprint(g.NSIDs), "[]")})
	}
	t.Render()
	return nil
}

// fields lists the fields of a page (a struct with the specification's names) in order, with names in lower case as
// in nvme-cli. Reserved fields, tables, vendor space and invalid fields are left out.
func fields(page any) []field {
	v := reflect.Indirect(reflect.ValueOf(page))
	var fs []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Name == "VendorSpecific" || !valid(page, f.Name) {
			continue
		}
		name := strings.ToLower(f.Name)
		if f.Name == "CDFS" {
			name = "ocfs" // the specification's name when nvme-cli adopted it
		}
		shown, value := show(f.Name, v.Field(i))
		if value != nil {
			fs = append(fs, field{name, shown, value})
		}
	}
	return fs
}

// valid reports whether a field of a page is meaningful.
func valid(page any, name string) bool {
	switch name {
	case "NPWG", "NPWA", "NPDA", "NOWS":
		return page.(*nvme.IdentifyNamespace).NSFEAT&(nvme.NSFEATOptPerf|nvme.NSFEATOptPerfLarge) != 0
	case "NPDG":
		return page.(*nvme.IdentifyNamespace).NSFEAT&nvme.NSFEATOptPerf != 0
	}
	return true
}

// bitFields holds the plain numbers that are read bit by bit, or are usually shown in hexadecimal.
var bitFields = map[string]bool{
	"VID": true, "SSVID": true, "CNTLID": true, "RTD3R": true, "RTD3E": true, "RRLS": true, "BPCAP": true, "FRMW": true,
	"AVSCC": true, "APSTA": true, "RPMBS": true, "HCTMA": true, "SANICAP": true, "SQES": true, "CQES": true, "FUSES": true,
	"FNA": true, "CDFS": true, "FCATT": true, "TMPTHHA": true,
	"NSZE": true, "NCAP": true, "NUSE": true, "FLBAS": true, "MC": true, "DPC": true, "DPS": true, "RESCAP": true, "FPI": true,
}

// show returns a field's value: counts in decimal, bit fields (including named integer types) in hexadecimal,
// followed by the name if there is one. In JSON numbers are numbers.
func show(name string, v reflect.Value) (shown string, value any) {
	switch v.Kind() {
	case reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return "", nil // a table
		}
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		return showBytes(name, b)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		shown = fmt.Sprint(v.Uint())
		named, ok := v.Interface().(fmt.Stringer)
		_, isKind := named.(nvme.ControllerType)
		if inBits := bitFields[name] || v.Type().PkgPath() != "" && !isKind; inBits && v.Uint() != 0 {
			shown = fmt.Sprintf("%#x", v.Uint())
		}
		if ok {
			shown += " (" + named.String() + ")"
		}
		return shown, v.Uint()
	}
	if n, ok := v.Interface().(nvme.Uint128); ok {
		return n.String(), json.Number(n.String())
	}
	return "", nil
}

// showBytes returns the value of a field of bytes, text or an identifier.
func showBytes(name string, b []byte) (shown string, value any) {
	switch name {
	case "IEEE":
		oui := uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
		return fmt.Sprintf("%06x", oui), oui
	case "FGUID":
		shown = uuid.UUID(b).String()
	case "NGUID", "EUI64":
		shown = hex.EncodeToString(b)
	default:
		shown = nvme.Text(b)
		if text, _, _ := bytes.Cut(b, []byte{0}); !printable(string(text)) {
			shown = hex.EncodeToString(b)
		}
	}
	return shown, shown
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
