package main

import (
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

// TestOtherNames: who calls a command as nvme-cli does, or names a target by an argument, is told what to write.
func TestOtherNames(t *testing.T) {
	wantRefused(t, "", map[string]string{
		"dsm -n 1":                      `nvmeinit: there is no command "dsm"; is discard meant? see nvmeinit discard --help`,
		"resv-notif-log":                `nvmeinit: there is no command "resv-notif-log"; is get-log meant? see nvmeinit get-log --help`,
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
