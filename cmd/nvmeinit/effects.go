package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// printEffects shows the Commands Supported and Effects log, in JSON as nvme-cli does.
func printEffects(w io.Writer, format cli.Format, log *nvme.EffectsLog) error {
	var rows []object
	set := func(queue, prefix string, all *[256]nvme.Effects, name func(nvme.Opcode) string) object {
		commands := object{}
		for op, e := range all {
			if e&nvme.EffectSupported == 0 {
				continue
			}
			what := name(nvme.Opcode(op))
			commands = append(commands, field{fmt.Sprintf("%s_%d (%s)", prefix, op, what), "", uint32(e)})
			rows = append(rows, object{
				{"queue", queue, nil}, {"opcode", fmt.Sprintf("%02xh", op), nil}, {"command", what, nil}, {"effects", effectNames(e), nil},
			})
		}
		return commands
	}
	admin := set("admin", "ACS", &log.Admin, nvme.Opcode.AdminName)
	io := set("I/O", "IOCS", &log.IO, nvme.Opcode.IOName)
	if format == cli.JSON {
		return cli.PrintJSON(w, []object{{
			number("command_set_identifier", uint8(nvme.CSINVM)), {"admin_cmd_set", "", admin}, {"io_cmd_set", "", io},
		}})
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "no commands")
		return nil
	}
	printTable(w, rows)
	return nil
}

// effectNames are the specification's.
func effectNames(e nvme.Effects) string {
	names := setBits(e, []bitName[nvme.Effects]{
		{nvme.EffectContentChange, "LBCC"}, {nvme.EffectCapacityChange, "NCC"}, {nvme.EffectInventoryChange, "NIC"}, {nvme.EffectCapability, "CCC"},
	})
	return cmp.Or(strings.Join(names, " "), "-")
}
