package main

import (
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// stamp formats a timestamp as in the Timestamp feature and the Persistent Event log: milliseconds since 1970 in
// bits 47:0.
func stamp(v uint64) string {
	t := nvme.Timestamp{Millis: v & (1<<48 - 1)}
	return t.Time().UTC().Format("2006-01-02T15:04:05.000Z")
}

// eventDetail returns what is specific to the type of an event: in words, and in JSON with nvme-cli's names.
func eventDetail(e *nvme.PersistentEvent) object {
	detail := func(format string, a ...any) field { return field{"detail", fmt.Sprintf(format, a...), nil} }
	event, err := e.Decode()
	if err != nil {
		return object{detail("%v", err)}
	}
	switch d := event.(type) {
	case *nvme.TimestampChangeEvent:
		return object{
			detail("it was %s", stamp(d.Previous)), {"prev_ts", "", d.Previous}, {"ml_secs_since_reset", "", d.SinceReset},
		}
	case *nvme.PowerOnEvent:
		firmware := nvme.Text(d.Firmware[:])
		return object{
			detail("power cycle %d, firmware %s", d.PowerCycle, firmware), {"fw_rev", "", firmware}, {"power_cycle_count", "", d.PowerCycle},
		}
	case *nvme.ChangeNamespaceEvent:
		what := detail("namespace %d created", d.NSID)
		switch {
		case d.NSID == nvme.NSIDAll:
			what = detail("all namespaces deleted")
		case nvme.NSAction(d.CDW10&0xf) == nvme.NSDelete:
			what = detail("namespace %d deleted", d.NSID)
		}
		return object{
			what,
			{"nsmgt_cdw10", "", d.CDW10}, {"nsze", "", d.NSZE}, {"nscap", "", d.NCAP}, {"flbas", "", d.FLBAS}, {"dps", "", d.DPS},
			{"nmic", "", uint8(d.NMIC)}, {"ana_grp_id", "", d.ANAGRPID}, {"nvmset_id", "", d.NVMSETID}, {"nsid", "", d.NSID},
		}
	case *nvme.FormatStartEvent:
		return object{detail("namespace %d", d.NSID), {"nsid", "", d.NSID}, {"fna", "", d.FNA}, {"format_nvm_cdw10", "", d.CDW10}}
	case *nvme.FormatEndEvent:
		return object{
			detail("namespace %d: %v", d.NSID, d.Status()), {"nsid", "", d.NSID}, {"smallest_fpi", "", d.SmallestFPI},
			{"format_nvm_status", "", d.Failed}, {"compln_info", "", d.Info}, {"status_field", "", d.StatusPhase},
		}
	case *nvme.SanitizeStartEvent:
		return object{
			detail("dword 10 %#x", d.CDW10), {"sanitize_cap", "", d.SANICAP}, {"sanitize_cdw10", "", d.CDW10}, {"sanitize_cdw11", "", d.CDW11},
		}
	case *nvme.SanitizeEndEvent:
		return object{detail("%v", d.SSTAT), {"sanitize_prog", "", d.SPROG}, {"sanitize_status", "", uint16(d.SSTAT)}}
	}
	return object{detail("%d bytes", len(e.Data))}
}
