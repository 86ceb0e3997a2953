package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// wantRefused fails t unless command is refused as badly used with each of the arguments, which stand before the
// beginning of what it then says.
func wantRefused(t *testing.T, command string, says map[string]string) {
	t.Helper()
	for args, want := range says {
		root := newRoot()
		var got strings.Builder
		root.SetArgs(strings.Fields(command + " " + args))
		if code := cli.Execute(t.Context(), root, &got); code != cli.ExitUsage || !strings.HasPrefix(got.String(), want) {
			t.Errorf("%s %s: exit code %d, %q, want %q", command, args, code, got.String(), want)
		}
	}
}

// nvmeCLICommands are those of nvme-cli 2.13.
const nvmeCLICommands = `
list list-subsys id-ctrl id-ns id-ns-granularity id-ns-lba-format list-ns list-ctrl nvm-id-ctrl nvm-id-ns
nvm-id-ns-lba-format primary-ctrl-caps list-secondary cmdset-ind-id-ns ns-descs id-nvmset id-uuid id-iocs id-domain
list-endgrp create-ns delete-ns attach-ns detach-ns get-ns-id get-log telemetry-log fw-log changed-ns-list-log
smart-log ana-log error-log effects-log endurance-log predictable-lat-log pred-lat-event-agg-log persistent-event-log
endurance-event-agg-log lba-status-log resv-notif-log boot-part-log phy-rx-eom-log get-feature device-self-test
self-test-log supported-log-pages fid-support-effects-log mi-cmd-support-effects-log media-unit-stat-log
supported-cap-config-log mgmt-addr-list-log rotational-media-info-log changed-alloc-ns-list-log
dispersed-ns-participating-nss-log reachability-groups-log reachability-associations-log host-discovery-log
ave-discovery-log pull-model-ddc-req-log set-feature set-property get-property format fw-commit fw-download
admin-passthru io-passthru security-send security-recv get-lba-status capacity-mgmt resv-acquire resv-register
resv-release resv-report dsm copy flush compare read write write-zeroes write-uncor verify sanitize sanitize-log
reset subsystem-reset ns-rescan show-regs set-reg get-reg discover connect-all connect disconnect disconnect-all
config gen-hostnqn show-hostnqn gen-dhchap-key check-dhchap-key gen-tls-key check-tls-key tls-key dir-receive
dir-send virt-mgmt rpmb lockdown dim show-topology io-mgmt-recv io-mgmt-send nvme-mi-recv nvme-mi-send fw-activate
`

// TestOtherNames: who calls a command as nvme-cli does, or names a target by an argument, is told what to write.
func TestOtherNames(t *testing.T) {
	wantRefused(t, "", map[string]string{
		"dsm -n 1":                      `nvmeinit: there is no command "dsm"; is discard meant? see nvmeinit discard --help`,
		"resv-notif-log":                `nvmeinit: there is no command "resv-notif-log"; is get-log meant? see nvmeinit get-log --help`,
		"disconnect -n nqn.x":           `nvmeinit: there is no command "disconnect": nvmeinit keeps no connections: `,
		"id-uuid":                       `nvmeinit: there is no command "id-uuid": nvmeinit admin-passthru --opcode 0x06 --cdw10 0x17 --data-len 4096 shows`,
		"get-reg --offset 0":            `nvmeinit: there is no command "get-reg"; is show-regs meant?`,
		"id-ctrl -b":                    "nvmeinit: unknown shorthand flag: 'b' in -b: admin-passthru -b prints the bytes",
		"get-feature -b":                "nvmeinit: unknown shorthand flag: 'b' in -b: admin-passthru -b prints the bytes",
		"create-ns -b 4096":             "nvmeinit: unknown shorthand flag: 'b' in -b; see nvmeinit create-ns --help",
		"connect -S DHHC-1:00:x":        "nvmeinit: unknown shorthand flag: 'S' in -S: everybody can see arguments",
		"connect-all -C DHHC-1:00:x":    "nvmeinit: unknown shorthand flag: 'C' in -C: everybody can see arguments",
		"discover -D":                   "nvmeinit: unknown shorthand flag: 'D' in -D: each command makes a controller",
		"write -S 1":                    "nvmeinit: unknown shorthand flag: 'S' in -S; see nvmeinit write --help",
		"write -C":                      "nvmeinit: unknown shorthand flag: 'C' in -C; see nvmeinit write --help",
		"write -D 1":                    "nvmeinit: unknown shorthand flag: 'D' in -D; see nvmeinit write --help",
		"list -v":                       "nvmeinit: unknown shorthand flag: 'v' in -v: -o json has all",
		"connect --host-iface eth0":     "nvmeinit: unknown flag: --host-iface: -w connects from an address",
		"connect-all --dump-config":     "nvmeinit: unknown flag: --dump-config: nvmeinit keeps no connections",
		"version":                       `nvmeinit: there is no command "version"; is --version meant?`,
		"bench rdma://host:4420":        "nvmeinit: rdma://host:4420: flags say where the target is: want -t rdma -a host -s 4420; see nvmeinit bench --help",
		"bench a.fio tcp://[::1]":       "nvmeinit: tcp://[::1]: flags say where the target is: want -t tcp -a ::1;",
		"list 192.0.2.1:4421":           "nvmeinit: 192.0.2.1:4421: flags say where the target is: want -t rdma or tcp -a 192.0.2.1 -s 4421;",
		"discover 192.0.2.1":            "nvmeinit: 192.0.2.1: flags say where the target is: want -t rdma or tcp -a 192.0.2.1;",
		"id-ns /dev/nvme0n1":            "nvmeinit: /dev/nvme0n1: flags say where the target is: want -t, -a and, for a namespace, --nsid in place of a device;",
		"list host":                     `nvmeinit: list takes flags only, not "host"`,
		"list -t tcp -a 192.0.2.1:4420": `nvmeinit: -a: "192.0.2.1:4420" is not an IP address: want one as 192.0.2.1 or 2001:db8::1; is -t tcp -a 192.0.2.1 -s 4420 meant?`,
		"list -t rdma -a rdma://h:1":    `nvmeinit: -a: "rdma://h:1" is not an IP address: want one as 192.0.2.1 or 2001:db8::1; is -t rdma -a h -s 1 meant?`,
		"bench rw=randread":             "nvmeinit: rw=randread: want dashes in front, as --rw=randread, or a job file",
		"bench --jobs 4":                "nvmeinit: unknown flag: --jobs; see nvmeinit bench --help",
		"read --start-block 0":          "nvmeinit: unknown flag: --start-block; is --offset meant: ",
		"write --data f":                "nvmeinit: unknown flag: --data; is --input meant: ",
		"read --data f":                 "nvmeinit: unknown flag: --data; is --output meant: ",
		"list --data f":                 "nvmeinit: unknown flag: --data; ",
		"discard --blocks 8":            "nvmeinit: unknown flag: --blocks; is --length meant: ",
		"show-hostnqn 192.0.2.1":        `nvmeinit: show-hostnqn takes flags only, not "192.0.2.1"`,
	})
	for args, want := range map[string]string{
		"bench -t tcp -rw=randread -iodepth=128 -bs 4k -name=x --size=1g": "bench -t tcp --rw=randread --iodepth=128 --bs 4k --name=x --size=1g",
		"bench -i4 -gG -q nqn.x -xyz=1 - -- -rw":                          "bench -i4 -gG -q nqn.x -xyz=1 - -- -rw",
		"list -nsid=1":                                                    "list -nsid=1",
	} {
		if got := strings.Join(doubleDashed(newRoot(), strings.Fields(args)), " "); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	for _, name := range strings.Fields(nvmeCLICommands) {
		root := newRoot()
		c, _, err := root.Find([]string{name})
		here := err == nil && c != root
		var said strings.Builder
		root.SetArgs([]string{name, "--help"})
		root.SetOut(io.Discard)
		code := cli.Execute(t.Context(), root, &said)
		if _, absent := absentCommands[name]; here && (absent || code != cli.ExitOK) || !here && !absent && !strings.Contains(said.String(), " meant? see ") {
			t.Errorf("%s, which nvme-cli has: exit code %d, %q", name, code, said.String())
		}
	}
	for name := range absentCommands {
		if !slices.Contains(strings.Fields(nvmeCLICommands), name) {
			t.Errorf("%s is no command of nvme-cli's", name)
		}
	}
	for name, others := range otherNames {
		root := newRoot()
		if c, _, err := root.Find([]string{name}); err != nil || c == root {
			t.Errorf("there is no command %s that %v could mean: %v", name, others, err)
		}
		for _, c := range root.Commands() {
			if slices.Contains(others, c.Name()) {
				t.Errorf("%s is a command itself", c.Name())
			}
		}
	}
}
