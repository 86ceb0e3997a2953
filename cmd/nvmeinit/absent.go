package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// Why nvmeinit lacks a command of nvme-cli's, and what to use.
const (
	noConnections = "nvmeinit keeps no connections: each command ends its own, and connect --hold and connect-all --hold theirs at Ctrl-C"
	noReset       = "each command makes a controller of its own when it connects, and reads anew what the target has"
	noProperty    = "show-regs shows the properties; only connecting sets any"
	noFirmware    = "a fabric's target is a program or a device of its own, and gets its firmware there"
	noRaw         = "admin-passthru -b prints the bytes of any page, and get-log -b those of any log"
	noVerbosity   = "-o json has all that there is to show, and --pcap every packet"
	noArgument    = "everybody can see arguments; --dhchap-secret-file and --dhchap-ctrl-secret-file name files of secrets"
	noTLS         = "NVMe/TCP is without TLS here; --dhchap-secret-file has host and target authenticate each other"
)

// absentCommands holds the commands of nvme-cli that have no counterpart here.
var absentCommands = map[string]string{
	"disconnect": noConnections, "disconnect-all": noConnections,
	"config": noConnections + "; flags say what to connect to, and connect-all asks a discovery controller",
	"reset":  noReset, "subsystem-reset": noReset, "ns-rescan": noReset,
	"set-property": noProperty, "set-reg": noProperty,
	"show-topology": "list shows the namespaces of a subsystem, list-ctrl its controllers, and ana-log what can be reached through this one",
	"fw-commit":     noFirmware, "fw-activate": noFirmware, "fw-download": noFirmware,
	"check-dhchap-key": "the flags that take a secret's file check its form and CRC before they connect",
	"gen-tls-key":      noTLS, "check-tls-key": noTLS, "tls-key": noTLS,

	"nvm-id-ns": identifyPage("5 --nsid 1"), "id-ns-lba-format": identifyPage("9"), "nvm-id-ns-lba-format": identifyPage("10"),
	"id-nvmset": identifyPage("4"), "primary-ctrl-caps": identifyPage("0x14"), "list-secondary": identifyPage("0x15"),
	"id-ns-granularity": identifyPage("0x16"), "id-uuid": identifyPage("0x17"), "id-domain": identifyPage("0x18"), "list-endgrp": identifyPage("0x19"),

	"device-self-test": adminCommand("0x14"), "virt-mgmt": adminCommand("0x1c"), "capacity-mgmt": adminCommand("0x20"),
	"dim": adminCommand("0x21"), "lockdown": adminCommand("0x24"), "get-lba-status": adminCommand("0x86"),
	"dir-send": adminCommand("0x19"), "dir-receive": adminCommand("0x1a"), "security-send": adminCommand("0x81"), "security-recv": adminCommand("0x82"),
	"rpmb": adminCommand("0x82"), "nvme-mi-send": adminCommand("0x1d"), "nvme-mi-recv": adminCommand("0x1e"),
	"io-mgmt-recv": ioCommand("0x12"), "io-mgmt-send": ioCommand("0x1d"),
}

func identifyPage(cdw10 string) string {
	return "nvmeinit admin-passthru --opcode 0x06 --cdw10 " + cdw10 + " --data-len 4096 shows the bytes of that page"
}

func adminCommand(opcode string) string {
	return "nvmeinit admin-passthru --opcode " + opcode + " sends the command; see nvmeinit admin-passthru --help"
}

func ioCommand(opcode string) string {
	return "nvmeinit io-passthru --opcode " + opcode + " sends the command; see nvmeinit io-passthru --help"
}

// absentFlags holds flags of nvme-cli, and a letter that it has for the same one everywhere, that commands lack.
var absentFlags = map[string]string{
	"host-iface":        "-w connects from an address, and so by the interface that has it",
	"duplicate-connect": noReset,
	"nr-write-queues":   "every queue carries reads and writes; -i says how many there are",
	"nr-poll-queues":    "every queue is polled while there is work; -i says how many there are",
	"persistent":        "connect-all --hold stays connected to the discovery controllers, and follows what they say",
	"config":            noConnections, "dump-config": noConnections,
	"device":     "nvmeinit has no devices; -t and -a say where the target is",
	"save":       "a controller that is made for a connection has nowhere to save a feature; admin-passthru --opcode 0x09 asks one for it all the same",
	"raw-binary": noRaw, "v": noVerbosity, "verbose": noVerbosity,
	"tls": noTLS, "tls-key": noTLS, "tls-key-identity": noTLS, "keyring": noTLS, "concat": noTLS,
}

// absentLetters holds letters for flags of nvme-cli that commands lack. With other commands it has them for other flags:
// -b of create-ns is a block's size, and -S of write a directive.
var absentLetters = map[string]struct {
	of      func(*cobra.Command) bool
	instead string
}{
	"S": {connects, noArgument}, "C": {connects, noArgument}, "D": {connects, noReset}, "b": {showsPages, noRaw},
}

func connects(c *cobra.Command) bool {
	return slices.Contains([]string{"discover", "connect", "connect-all"}, c.Name())
}

func showsPages(c *cobra.Command) bool { return c.GroupID == pagesGroup }

// insteadOf says what to use in place of a flag of nvme-cli's, or of a letter for one, that c lacks.
func insteadOf(c *cobra.Command, flag string) string {
	if letter, known := absentLetters[flag]; known && letter.of(c) {
		return letter.instead
	}
	return absentFlags[flag]
}
