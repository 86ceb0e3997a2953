package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func TestParseEverything(t *testing.T) {
	c, err := Load(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := func(s string) cli.Endpoint { return endpointOf(t, s) }
	want := &Config{
		Listen:  []cli.Endpoint{endpoint("rdma://192.0.2.1:4420"), endpoint("tcp://[2001:db8::1]:4420")},
		Metrics: "127.0.0.1:9090", Control: "/run/nvmetgt/control", Pcap: "packets.pcapng",
		State: "state", Discovery: Discovery{NQN: "nqn.2026-11.org.example:discovery", Referrals: []cli.Endpoint{endpoint("tcp://192.0.2.2:8009")}},
		Authentication: &Authentication{
			Secrets: "secrets", Optional: true,
			Hosts:  []HostSecret{{NQN: "nqn.2026-11.org.example:host1", SecretFile: "host1.key", CtrlSecretFile: "ctrl.key"}},
			Hashes: []nvme.AuthHash{nvme.AuthSHA384, nvme.AuthSHA256}, DHGroups: []nvme.DHGroup{nvme.DHFFDHE3072, nvme.DHNull},
		},
		Log:          Log{Level: "debug", JSON: true},
		Network:      Network{InCapsule: new(cli.Size), QueueDepth: 256, PlainUDP: true, NoLocalICRC: true, LocalMemory: true, BusyPoll: ptr(Duration(20 * time.Microsecond))},
		DrainTimeout: ptr(Duration(20 * time.Second)),
		Limits:       Limits{Connections: 500, Controllers: 100, HostConnections: 30, HalfOpen: 40, HostHalfOpen: 8, Memory: 1 << 30, Queues: 16, ConnectTimeout: Duration(5 * time.Second)},
		Subsystems: []Subsystem{
			{
				NQN: "nqn.2026-11.org.example:fast", Serial: "0001", Model: "Example",
				Hosts: []string{"nqn.2026-11.org.example:host1"}, MaxControllers: 4,
				Namespaces: []Namespace{
					{NSID: 7, Volume: "disk.img", Size: 1 << 30, BlockSize: 512, Preallocate: true, IO: "buffered",
						UUID: ptr(UUID(uuid.MustParse("6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001")))},
					{Volume: "mem:64MiB", ReadOnly: true, ANAGroup: 2,
						NGUID: &NGUID{0xef, 0x90, 0x68, 0x9c, 0x6c, 0x46, 0xd4, 0x4c, 0x89, 0xc1, 0x40, 0x67, 0x80, 0x13, 0x09, 0xa8},
						EUI64: &EUI64{0x00, 0x25, 0x38, 0x5b, 0x71, 0xb0, 0xf5, 0x0a}},
				},
			},
			{NQN: "nqn.2026-11.org.example:empty", Namespaces: []Namespace{}, Create: &Create{Directory: "volumes", Capacity: 1 << 40, Preallocate: true}},
		},
		ANA: []ANA{
			{Group: 2, State: ANAState(nvme.ANANonOptimized)},
			{Group: 2, State: ANAState(nvme.ANAInaccessible), Listen: ptr(endpoint("rdma://192.0.2.1:4420"))},
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("read\n%+v, want\n%+v", c, want)
	}
	b, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("written", b)
	if err != nil {
		t.Fatalf("what was written can't be read: %v\n%s", err, b)
	}
	if !reflect.DeepEqual(again, c) {
		t.Errorf("written and read again\n%+v, want\n%+v\n%s", again, c, b)
	}
}

func ptr[T any](v T) *T { return &v }

const nqn = "nqn.2026-11.org.example:a"

// good is a valid configuration, to which mistakes are added.
const good = "subsystems:\n- nqn: " + nqn + "\n  namespaces:\n  - volume: mem:1MiB\n"

// doubling returns n lines, each of which repeats the line above twice.
func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "- hosts: &h%d [*h%d, *h%[2]d]\n", i+1, i)
	}
	return b.String()
}

// mistake is a configuration, and how its error begins.
type mistake struct{ text, want string }

// malformed has unknown keys, and values of the wrong kind.
var malformed = []mistake{
	{"", "f: subsystems: there are none"},
	{"sub: [\n", "f:1: "},
	{"subsystems: " + strings.Repeat("[", 101) + "\n", "f:1: lists or keys lie in one another more than 100 deep"},
	{"subsystems: " + strings.Repeat("[{a: ", 51) + "\n", "f:1: lists or keys lie in one another"},
	{"subsystems:\n" + strings.Repeat("[\n", 101) + "\n", "f:102: lists or keys lie in one another"},
	{"subsystems:\n" + strings.Repeat("- ", 101) + "a\n", "f:2: lists or keys lie in one another"},
	{strings.Repeat("? ", 101) + "a\n", "f:1: lists or keys lie in one another"},
	{good + "  - volume: caf\xe9.img\n", "f:5: it is not UTF-8"},
	{"# caf\xe9\r\n" + good, "f:1: it is not UTF-8"},
	{good + "lisen: []\n", `f:5: there is no key "lisen"; is "listen" meant?`},
	{good + "  - volume: mem:1MiB\n    sise: 3\n", `f:6: there is no key "sise"; is "size" meant?`},
	{good + "  create: {directory: d, capacity1: 1TiB}\n", `f:5: there is no key "capacity1"; is "capacity" meant?`},
	{good + "    hosts: [" + nqn + "]\n", `f:5: there is no key "hosts" here`},
	{good + "limits:\n\tqueues: 3\n", "f:6: the line is indented by a tab: want spaces"},
	{"\t" + good, "f:1: the line is indented by a tab: want spaces"},
	{good + "ana:\n-\t- group: 1\n", "f:6: the line is indented by a tab: want spaces"},
	{good + "state: @x\n", "f:5: a value that begins with @, ` or % has to be in quotes"},
	{good + "state: `x`\n", "f:5: a value that begins with @, ` or % has to be in quotes"},
	{good + "state: %x\n", "f:5: a value that begins with @, ` or % has to be in quotes"},
	{good + "listen: [tcp://127.0.0.1\n", "f:5: what is opened here by a bracket or brace isn't closed"},
	{good + "limits: {queues: 3\n", "f:5: what is opened here by a bracket or brace isn't closed"},
	{good + "listen: [tcp://127.0.0.1,, tcp://127.0.0.2]\n", "f:5: a value is missing: look for a comma too many"},
	{good + "fnord\n", `f:5: want keys with values, as "key: value"`},
	{good + "   size: 1MiB\n", "f:5: it doesn't belong here: look whether this line is indented"},
	{good + "  model: a: b\n", `f:5: it doesn't belong here: look whether this line is indented as those beside it, and whether a value with ": " lacks its quotes`},
	{good + "fnord: 1\n", `f:5: there is no key "fnord"; nvmetgt check --help shows`},
	{good + "network: {queue_depth: many}\n", `f:5: network.queue_depth "many": want a whole number`},
	{good + "network: many\n", `f:5: network "many": want keys with values`},
	{good + "---\nmetrics: 127.0.0.1:9090\n", "f:6: a second document begins above"},
	{"---\n---\n" + good, "f:2: the document above is empty"},
	{"---\n# all of it\n---\n" + good, "f:3: the document above is empty"},
	{good + "---\n---\nmetrics: 127.0.0.1:9090\n", "f:6: the document above is empty"},
	{"root:x:0\n", "f:1: want keys with values"},
	{"subsystems: {}\n", "f:1: subsystems: want a list"},
	{good + "    nsid: -1\n", `f:5: subsystems[0].namespaces[0].nsid "-1": want a whole number from 1 to 1024`},
	{good + "    ana_group: -1\n", `f:5: subsystems[0].namespaces[0].ana_group "-1": want a whole number from 1 to 128`},
	{good + "ana: [{group: -1, state: change}]\n", `f:5: ana[0].group "-1": want a whole number from 1 to 128`},
	{good + "    nsid: \"1\"\n", `f:5: subsystems[0].namespaces[0].nsid "1": want a whole number from 1 to 1024, without quotes`},
	{good + "    read_only: 'true'\n", `f:5: subsystems[0].namespaces[0].read_only "true": want true or false, without quotes`},
	{good + "network:\n  <<: {dscp: 1}\n  dscp: 3\n", `f:7: "dscp" is given here, and in what "<<" merges, too: leave one of them out`},
	{good + "network: {dscp: *three}\n", `f:5: there is no anchor "three" above: put the value in quotes if it is no alias`},
	{good + "network: &n\n  <<: *n\n", "f:6: *n is part of what &n marks, which would have no end: write out what is meant"},
	{good + "network: &n {dscp: *n}\n", "f:5: *n is part of what &n marks"},
	{good + "network: &n\x1b\u202e {dscp: *n\x1b\u202e}\n", "f:5: *n?? is part of what &n?? marks"},
	{good + "network: {<<: *n\x1b\u202e}\n", "f: cannot find anchor by alias name n??"},
	{good + "  - volume: \"mem:\\e\u202e\"\n", "f:5: subsystems[0].namespaces[1].volume mem:??: size"},
	{"subsystems: &s\n- *s\n", "f:2: *s is part of what &s marks"},
	{"subsystems:\n- hosts: &h0 [x, x]\n" + doubling(22), "f:19: with *h16, aliases repeat more than 1048576 values: write out what is meant"},
	{good + "    nsid: 4294967296\n", `f:5: subsystems[0].namespaces[0].nsid "4294967296": want`},
	{good + "    nsid: 1.5\n", `f:5: subsystems[0].namespaces[0].nsid "1.5": want`},
	{good + "    nsid: [1]\n", "f:5: subsystems[0].namespaces[0].nsid: want a whole number"},
	{good + "    read_only: 3\n", `f:5: subsystems[0].namespaces[0].read_only "3": want true or false`},
	{good + "    size: lots\n", `f:5: subsystems[0].namespaces[0].size: size "lots"`},
	{good + "  serial: 0001\n", `f:5: subsystems[0].serial "0001": YAML takes it for the number 1: put it in quotes`},
	{good + "  - volume: 1.50\n", `f:5: subsystems[0].namespaces[1].volume "1.50": YAML takes it for the number 1.5: put it in quotes`},
	{good + "  - volume: .inf\n", `f:5: subsystems[0].namespaces[1].volume ".inf": YAML takes it for the number +Inf: put it in quotes`},
	{good + "    size: 0100\n", `f:5: subsystems[0].namespaces[0].size "0100": YAML takes it for the number 64: put it in quotes`},
	{good + "    eui64: 0000000000000012\n", `f:5: subsystems[0].namespaces[0].eui64 "0000000000000012": YAML takes it for the number 10: put it in quotes`},
	{good + "    nsid: 010\n", `f:5: subsystems[0].namespaces[0].nsid "010": YAML takes it for the number 8: leave out the zero in front`},
	{good + "    nsid: 0_10\n", `f:5: subsystems[0].namespaces[0].nsid "0_10": YAML takes it for the number 8: leave out`},
	{good + "    nsid: .inf\n", `f:5: subsystems[0].namespaces[0].nsid ".inf": want a whole number`},
	{good + "  serial: [a]\n", "f:5: subsystems[0].serial: want one value"},
	{good + "discovery: {referrals: [tcp://host:8009]}\n", `f:5: discovery.referrals[0]: "tcp://host:8009": "host" is not an IP address`},
	{good + "discovery: {referrals: [tcp://192.0.2.2:8009, tcp://192.0.2.2:8009]}\n", "f:5: discovery.referrals[1] tcp://192.0.2.2:8009: it is given twice"},
	{good + "listen: [{tcp: //127.0.0.1}]\n", "f:5: listen[0]: want one value"},
	{good + "listen:\n- tcp: 127.0.0.1\n  port: 4420\n", "f:6: listen[0]: want one value"},
}

// outOfRange has invalid values for the target.
var outOfRange = []mistake{
	{good + "network:\n  queue_depth: 5\n", "f:6: network.queue_depth 5: want 32 to 1024"},
	{good + "network: {busy_poll: soon}\n", "f:5: network.busy_poll: want a time"},
	{good + "network: {dscp: -1}\n", "f:5: network.dscp -1: want 0 to 63"},
	{good + "network: {dscp: 300}\n", "f:5: network.dscp 300: want 0 to 63"},
	{good + "network: {busy_poll: 1m}\n", "f:5: network.busy_poll 1m0s: want 0"},
	{good + "network: {in_capsule: 33}\n", "f:5: network.in_capsule 33: want a multiple of 16"},
	{good + "listen: [udp://127.0.0.1]\n", "f:5: "},
	{good + "listen: [tcp://127.0.0.1, tcp://127.0.0.1:4420]\n", "f:5: listen[1] tcp://127.0.0.1:4420: it is given twice"},
	{good + "listen: [tcp://0.0.0.0, tcp://127.0.0.1:4421, rdma://127.0.0.1, tcp://127.0.0.1]\n", "f:5: listen[3] tcp://127.0.0.1:4420: tcp://0.0.0.0:4420 listens there as well: leave one of them out"},
	{good + "listen:\n- rdma://127.0.0.1\n- rdma://[::1]\n- rdma://[::]\n", "f:8: listen[2] rdma://[::]:4420: rdma://[::1]:4420 listens there as well"},
	{good + "listen:\n- tcp://127.0.0.1\n-\n", "f:7: listen[1]: it is missing: want rdma://"}, // found by FuzzParse
	{good + "metrics: 9090\n", `f:5: metrics "9090": want ADDRESS:PORT`},
	{good + "metrics: 127.0.0.1:4420\n", "f:5: metrics 127.0.0.1:4420: tcp://127.0.0.1:4420 listens there: choose another port"},
	{good + "listen: [rdma://127.0.0.1, tcp://0.0.0.0:9090]\nmetrics: 127.0.0.1:9090\n", "f:6: metrics 127.0.0.1:9090: tcp://0.0.0.0:9090 listens there"},
	{good + "listen: [tcp://127.0.0.1:9090]\nmetrics: 0.0.0.0:9090\n", "f:6: metrics 0.0.0.0:9090: tcp://127.0.0.1:9090 listens there"},
	{good + "log: {level: loud}\n", `f:5: log.level "loud": want debug`},
	{good + "control: /" + strings.Repeat("x", 107) + "\n", "f:5: control /" + strings.Repeat("x", 107) + ": it has 108 bytes, and the path of a socket has 107 at most"},
	{good + "limits: {controllers: -1}\n", "f:5: limits.controllers -1"},
	{good + "limits: {connect_timeout: -5s}\n", "f:5: limits.connect_timeout -5s: want a positive time"},
	{good + "limits: {queues: 100000}\n", "f:5: limits.queues 100000: want 1 to 1024"},
	{good + "limits: {memory: 8388607}\n", "f:5: limits.memory 8.0 MiB (8,388,607 bytes): want 8.0 MiB to 256 GiB"},
	{good + "limits: {memory: 274877906945}\n", "f:5: limits.memory 256 GiB (274,877,906,945 bytes): want"},
	{good + "network: {queue_depth: 31}\n", "f:5: network.queue_depth 31: want 32 to 1024"},
	{good + "network: {queue_depth: 1025}\n", "f:5: network.queue_depth 1025: want 32 to 1024"},
	{good + "network: {dscp: 64}\n", "f:5: network.dscp 64: want 0 to 63"},
	{good + "network: {priority: -1}\n", "f:5: network.priority -1: want 0 (as the DSCP says) to 6"},
	{good + "network: {priority: 7}\n", "f:5: network.priority 7: want 0"},
	{good + "network: {engines: -1}\n", "f:5: network.engines -1: want 1 to 8"},
	{good + "network: {engines: 9}\n", "f:5: network.engines 9: want 1 to 8"},
	{good + "network: {engines: 2, local_memory: true}\n", "f:5: network.engines 2: want 1 with local_memory"},
	{good + "network: {busy_poll: -1us}\n", "f:5: network.busy_poll -1µs: want 0"},
	{good + "network: {in_capsule: 16400}\n", "f:5: network.in_capsule 16400: want a multiple of 16, at most 16384 with RDMA and 1048576 with TCP alone"},
	{good + "listen: [tcp://127.0.0.1, rdma://127.0.0.1]\nnetwork: {in_capsule: 16400}\n", "f:6: network.in_capsule 16400: want"},
	{good + "listen: [tcp://127.0.0.1]\nnetwork: {in_capsule: 1048592}\n", "f:6: network.in_capsule 1048592: want"},
	{good + "listen: [tcp://127.0.0.1]\nnetwork: {fault: loss=1%}\n", "f:6: network.fault: faults are injected into RDMA"},
	{good + "drain_timeout: -1s\n", "f:5: drain_timeout -1s: want 0, which waits for nothing, to 1h0m0s"},
	{good + "drain_timeout: 61m\n", "f:5: drain_timeout 1h1m0s: want 0"},
}

// extreme has the largest and smallest values that are allowed, and others that are close to mistakes.
var extreme = []string{
	"limits: {memory: 8MiB, queues: 1024, connections: 65536, host_connections: 65536, half_open: 65536, host_half_open: 65536}",
	"limits: {memory: 256GiB, queues: 1, controllers: 1}",
	"network: {queue_depth: 32, dscp: 0, priority: 6, busy_poll: 0s, in_capsule: 0}",
	"network: {engines: 8}", "network: {engines: 1, local_memory: true}",
	"network: {queue_depth: 1024, dscp: 63, in_capsule: 16384, fault: loss=1%}",
	"listen: [tcp://127.0.0.1]\nnetwork: {in_capsule: 1048576}",
	"listen: [tcp://127.0.0.1, rdma://127.0.0.1]\nnetwork: {fault: loss=1%}",
	"drain_timeout: 0s", "drain_timeout: 1h",
	"ana:\n- {group: 128, state: optimized}\n- {group: 1, state: change}\n- {group: 1, state: inaccessible, listen: \"tcp://127.0.0.1\"}",
	"discovery: {nqn: " + nqn + "2}",
	"listen: [rdma://127.0.0.1:9090, tcp://127.0.0.1, \"tcp://[::]:9090\"]\nmetrics: 127.0.0.1:9090",
	"  - {volume: disk, read_only: true}\n  - {volume: 'file:./disk', read_only: true}\nstate: disk/state",
	"state: d\ncontrol: d/control\npcap: d/pcap",
	"control: /" + strings.Repeat("x", 106), "network: {busy_poll: " + cli.MaxBusyPoll.String() + "}",
}

func TestParseExtreme(t *testing.T) {
	for _, x := range extreme {
		if _, err := Parse("f", []byte(good+x+"\n")); err != nil {
			t.Errorf("%s: %v", x, err)
		}
	}
}

// wrongSubsystems has invalid subsystems and namespaces.
var wrongSubsystems = []mistake{
	{good + "- nqn: " + nqn + "\n  namespaces: []\n", "f:5: subsystems[1].nqn " + nqn + ": it is given twice"},
	{good + "  hosts: [example]\n", "f:5: subsystems[0].hosts[0]: "},
	{good + "  hosts: []\n", "f:5: subsystems[0].hosts: it is empty: name who may connect"},
	{good + "  hosts:\n  # - " + nqn + "\n", "f:5: subsystems[0].hosts: it is empty: name who may connect"},
	{good + "authentication:\n  # secrets: secrets\n", "f:5: authentication: it is empty: name who may connect"},
	{good + "authentication: {hashes: []}\n", "f:5: authentication.hashes: it is empty"},
	{good + "authentication: {dh_groups: []}\n", "f:5: authentication.dh_groups: it is empty"},
	{good + "  hosts: &none []\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  hosts: !!seq []\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  hosts: !!null ~\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  ? hosts\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  !!str hosts: ~\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  &key hosts: ~\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  <<: {hosts: ~}\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  <<: [{hosts: ~}]\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "- nqn: " + nqn + "2\n  namespaces: &none []\n  hosts: *none\n", "f:7: subsystems[1].hosts: it is empty"},
	{good + "  serial: &none ~\n  hosts: *none\n", "f:5: subsystems[0].serial: want a value after the anchor"},
	{good + "metrics: &none ~\nauthentication: *none\n", "f:5: metrics: want a value after the anchor"},
	{"subsystems: !!seq\n- !!map\n  nqn: " + nqn + "\n  namespaces: []\n  hosts: ~\n", "f:5: subsystems[0].hosts: it is empty"},
	{good + "  serial: 123456789012345678901\n", "f:5: subsystems[0].serial"},
	{good + "  - volume: mem:1MiB\n    nsid: 5000\n", "f:6: subsystems[0].namespaces[1].nsid 5000: the largest is 1024"},
	{good + "  - volume: mem:1MiB\n    block_size: 3\n", "f:6: subsystems[0].namespaces[1].block_size: "},
	{good + "  - size: 1MiB\n", "f:5: subsystems[0].namespaces[1].volume: it is missing"},
	{good + "  - volume: mem:1MiB\n    uuid: 5\n", `f:6: subsystems[0].namespaces[1].uuid: "5": want one as 6e7f2a0e-`},
	{good + "  - volume: mem:1MiB\n    nguid: 55\n", `f:6: subsystems[0].namespaces[1].nguid: "55": want 32 hexadecimal digits`},
	{good + "  - volume: mem:1MiB\n    nguid: ef90689c6c46d44c89c14067801309a8f\n", `f:6: subsystems[0].namespaces[1].nguid: "ef90689c6c46d44c89c14067801309a8f": want 32 hexadecimal digits`},
	{good + "  - volume: mem:1MiB\n    eui64: \"0000000000000000\"\n", "f:6: "},
	{good + "  - volume: mem:1MiB\n    ana_group: 129\n", "f:6: subsystems[0].namespaces[1].ana_group 129: want 1 to 128"},
	{good + "ana:\n- {group: 0, state: optimized}\n", "f:6: ana[0].group 0: want 1 to 128"},
	{good + "ana:\n- {group: 1}\n", "f:6: ana[0].state: it is missing"},
	{good + "ana:\n- {group: 1, state: good}\n", "f:6: "},
	{good + "ana:\n- {group: 1, state: change, listen: \"tcp://192.0.2.1\"}\n", "f:6: ana[0].listen tcp://192.0.2.1:4420: the target doesn't listen"},
	{good + "ana:\n- {group: 1, state: change}\n- {group: 1, state: optimized}\n", "f:7: ana[1].group 1: it is given twice"},
	{good + "  create: {capacity: 1GiB}\n", "f:5: subsystems[0].create.directory: it is missing"},
	{good + "  create: {directory: d}\n", "f:5: subsystems[0].create.capacity: it is missing"},
	{good + "  create: {directory: d, capacity: 1GiB}\n", "f:5: subsystems[0].create: what hosts create must outlive"},
	{good + "    nsid: 600\n  create: {directory: d, capacity: 1GiB}\nstate: s\n", "f:4: subsystems[0].namespaces: namespace 600: from 513 on"},
	{good + "  create: {directory: d, capacity: 1GiB}\n- nqn: " + nqn + "2\n  namespaces: []\n  create: {directory: ./d/, capacity: 1GiB}\nstate: s\n",
		"f:8: subsystems[1].create.directory ./d/: subsystem " + nqn + " has it too: give each its own"},
	{good + "state: d\ncontrol: ./d\n", "f:6: control ./d: the state directory has it too: give each its own"},
	{good + "control: d\npcap: d\n", "f:6: pcap d: the control socket has it too"},
	{good + "  create: {directory: d, capacity: 1GiB}\nstate: d\n", "f:5: subsystems[0].create.directory d: the state directory has it too"},
	{good + "  - volume: d\npcap: d\n", "f:5: subsystems[0].namespaces[1].volume d: the capture has it too"},
	{good + "  - {volume: d, read_only: true}\n  - volume: ./d\n", "f:6: subsystems[0].namespaces[2].volume ./d: another namespace of " + nqn + " has it too"},
	{good + "  - volume: d\n  - {volume: 'delay:1ms:file:./d', read_only: true}\n",
		"f:6: subsystems[0].namespaces[2].volume delay:1ms:file:./d: another namespace of " + nqn + " has it too"},
	{good + "  - volume: pmem:d\n- nqn: " + nqn + "2\n  namespaces:\n  - volume: pmem:d,mode=inplace\n",
		"f:8: subsystems[1].namespaces[0].volume pmem:d,mode=inplace: another namespace of " + nqn + " has it too"},
	{good + "    nsid: 513\n  create: {directory: d, capacity: 1GiB}\nstate: s\n", "f:4: subsystems[0].namespaces: namespace 513: from 513 on"},
	{good + strings.Repeat("  - volume: mem:1MiB\n", 512) + "  create: {directory: d, capacity: 1GiB}\nstate: s\n", "f:4: subsystems[0].namespaces: at most 512"},
	{good + "    nsid: 7\n  - volume: mem:1MiB\n    nsid: 7\n", "f:7: subsystems[0].namespaces[1].nsid 7: it is given twice"},
	{good + "  - volume: mem:1MiB\n    nsid: 1025\n", "f:6: subsystems[0].namespaces[1].nsid 1025: the largest is 1024"},
	{good + strings.Repeat("  - volume: mem:1MiB\n", 1024), "f:4: subsystems[0].namespaces: it has 1025, and the most is 1024"},
	{good + "    io: fast\n", `f:5: subsystems[0].namespaces[0].io "fast": want auto, direct, buffered or uring`},
	{good + "  max_controllers: -1\n", "f:5: subsystems[0].max_controllers -1: want 1 or more"},
	{"subsystems:\n- nqn: nqn.2014-08.org.nvmexpress.discovery\n", "f:2: subsystems[0].nqn: this name is the discovery subsystem's"},
	{good + "discovery: {nqn: example}\n", "f:5: discovery.nqn: "},
	{good + "authentication: {hosts: [{nqn: example, secret_file: f}]}\n", "f:5: authentication.hosts[0].nqn: "},
	{good + "authentication: {hosts: [{nqn: " + nqn + "}]}\n", "f:5: authentication.hosts[0].secret_file: it is missing"},
	{good + "authentication:\n  hosts:\n  - {nqn: " + nqn + ", secret_file: f}\n  - {nqn: " + nqn + ", secret_file: g}\n", "f:8: authentication.hosts[1].nqn " + nqn + ": it is given twice"},
	{"subsystems:\n- nqn: example\n", "f:2: subsystems[0].nqn: "},
	{good + "discovery: {nqn: " + nqn + "}\n", "f:2: subsystems[0].nqn " + nqn + ": it is the discovery subsystem's"},
	{good + identified("uuid: "+someUUID) + strings.Replace(identified("uuid: "+someUUID), "1MiB", "2MiB", 1), "f:8: subsystems[0].namespaces[2].uuid " + someUUID + ": subsystems[0].namespaces[1].uuid (of mem:1MiB) has it too, and hosts tell volumes apart by it: give mem:2MiB another, or none"},
	{good + identified(someNGUID) + "- nqn: " + nqn + "2\n  namespaces:\n" + identified(someNGUID), "f:10: subsystems[1].namespaces[0].nguid ef90689c6c46d44c89c14067801309a8: subsystems[0].namespaces[1].nguid (of mem:1MiB) has it too"},
	{good + identified(someEUI64) + identified(someEUI64), "f:8: subsystems[0].namespaces[2].eui64 0025385b71b0f50a: "},
}

// Identifiers of namespaces, and a namespace with one.
const (
	someUUID  = "6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6a001"
	someNGUID = "nguid: ef90689c6c46d44c89c14067801309a8"
	someEUI64 = "eui64: 00-25-38-5b-71-b0-f5-0a"
)

func identified(id string) string { return "  - volume: mem:1MiB\n    " + id + "\n" }

// wrongVolumes has volumes that are invalid, whatever files exist.
var wrongVolumes = []struct{ volume, want string }{
	{"mem:x", `mem:x: size "x": write it as`},
	{"'mem:'", "mem:: it needs a size"},
	{"mem:1MiB\n    size: 2MiB", "mem:1MiB: two sizes: 1.0 MiB and 2.0 MiB; leave one out"},
	{"check:null:1MiB\n    size: 2MiB", "check:null:1MiB: two sizes: 1.0 MiB and 2.0 MiB; leave one out"},
	{"null:1000", "null:1000: size of 1000 bytes is not a multiple"},
	{"delay:soon:disk.img", `delay:soon:disk.img: delay "soon"`},
	{"delay:2ms", "delay:2ms: no volume is named; write delay:TIME:VOLUME"},
	{"fail:read@9-1:disk.img", "fail:read@9-1:disk.img: "},
	{"freeze:often:disk.img", "freeze:often:disk.img: "},
	{"check:delay:2ms:mem:x", `check:delay:2ms:mem:x: size "x"`},
	{"'pmem:'", "pmem:: it needs a path"},
	{"check:pmem:disk.img,mode=fast", `check:pmem:disk.img,mode=fast: unknown option "mode=fast"`},
}

// The names of all volumes are checked before any is opened.
func TestParseVolumes(t *testing.T) {
	for _, x := range wrongVolumes {
		_, err := Parse("f", []byte(good+"  - volume: "+x.volume+"\n"))
		if want := "f:5: subsystems[0].namespaces[1].volume " + x.want; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s…", x.volume, err, want)
		}
	}
	for _, v := range []string{"disk.img", "file:disk.img", "a:b", "fail:read@1:disk.img", "freeze:manual:check:null:1TiB", "pmem:disk.img,mode=inplace", "'mem:'\n    size: 1MiB", "mem:1MiB\n    size: 1MiB"} {
		if _, err := Parse("f", []byte(good+"  - volume: "+v+"\n")); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// Listening on every address of one family leaves those of the other, other ports and the other transport free.
func TestParseListen(t *testing.T) {
	if _, err := Parse("f", []byte(good+"listen: [\"tcp://[::]\", tcp://127.0.0.1, tcp://0.0.0.0:4421, rdma://127.0.0.1]\n")); err != nil {
		t.Error(err)
	}
}

// A UUID of zeroes, as in other targets' files, means none, and several namespaces may have it.
func TestParseNoUUID(t *testing.T) {
	none := identified("uuid: 00000000-0000-0000-0000-000000000000")
	if _, err := Parse("f", []byte(good+none+none)); err != nil {
		t.Error(err)
	}
}

// Each mistake is named with its line and what to do.
func TestParseMistakes(t *testing.T) {
	if _, err := Parse("f", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, x := range slices.Concat(malformed, outOfRange, wrongSubsystems) {
		c, err := Parse("f", []byte(x.text))
		if err == nil {
			t.Errorf("%q is read as %+v", x.text, c)
			continue
		}
		var fe *FieldError
		if !errors.As(err, &fe) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v is a %T", x.text, err, err)
		}
		if !strings.HasPrefix(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %s\nwant %s…", x.text, err, x.want)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load("no-such-file"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, append([]byte(good+"#"), bytes.Repeat([]byte{'x'}, maxFile-len(good))...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || err.Error() != big+": more than 4194304 bytes" {
		t.Error(err)
	}
	full := filepath.Join(t.TempDir(), "full") // as large as a file may be
	for text, valid := range map[string]bool{good: true, "none: 1\n": false} {
		if err := os.WriteFile(full, append([]byte(text+"#"), bytes.Repeat([]byte{'x'}, maxFile-len(text)-1)...), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(full)
		if fe := (*FieldError)(nil); (err == nil) != valid || (c != nil) != valid || !valid && (!errors.As(err, &fe) || fe.File != full) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

func TestComplete(t *testing.T) {
	c := &Config{Subsystems: []Subsystem{{Namespaces: []Namespace{{}, {NSID: 1}, {}, {NSID: 3}, {}}}}}
	c.Complete()
	var nsids []uint32
	for _, n := range c.Subsystems[0].Namespaces {
		nsids = append(nsids, n.NSID)
	}
	if want := []uint32{2, 1, 4, 3, 5}; !reflect.DeepEqual(nsids, want) {
		t.Errorf("NSIDs %v, want %v", nsids, want)
	}
	if len(c.Listen) != 2 || c.Network != (Network{}) {
		t.Errorf("listens on %v, with %+v, which nobody asked for", c.Listen, c.Network)
	}
}

// TestParseManyNamespaces: parsing twice as many namespaces takes about twice the memory, not four times: "ctl add"
// parses the whole configuration twice.
func TestParseManyNamespaces(t *testing.T) {
	cost := func(namespaces int) uint64 {
		var b strings.Builder
		b.WriteString("subsystems:\n- nqn: " + nqn + "\n  namespaces:\n")
		for i := range namespaces {
			fmt.Fprintf(&b, "  - {volume: v%d, size: 1MiB, block_size: 512, uuid: 6e7f2a0e-8f5a-4d1c-9a43-1f8a4bb6%04x, nguid: ef90689c6c46d44c89c140678013%04x, eui64: a025385b71b0%04x}\n", i, i, i, i)
		}
		b.WriteString("ana:\n")
		for i := range namespaces {
			fmt.Fprintf(&b, "- {group: %d, state: optimized}\n", i+1)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := Parse("f", []byte(b.String()))
		runtime.ReadMemStats(&after)
		if err != nil || len(c.Subsystems[0].Namespaces) != namespaces {
			t.Fatal(err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	cost(1) // what is made once
	if once, twice := cost(60), cost(120); twice > 3*once {
		t.Errorf("60 namespaces take %d bytes to parse, 120 take %d", once, twice)
	}
}

// Whatever a file contains, Parse rejects it or returns a Config that can be marshaled and parsed again.
func FuzzParse(tf *testing.F) {
	f := fuzzing.New(tf)
	full, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte("subsystems: [{nqn: " + nqn + ", namespaces: [{volume: mem:1}]}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse("f", b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v is no ErrInvalid", err)
			}
			return
		}
		out, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("again", out); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
	})
}

// TestChoices: the choices that errors and help list are accepted.
func TestChoices(t *testing.T) {
	modes := map[blockdev.IOMode]bool{}
	for _, mode := range IOModes {
		c, err := Parse("f", []byte(good+"    io: "+mode+"\n"))
		if err != nil {
			t.Fatalf("io: %s: %v", mode, err)
		}
		modes[c.Subsystems[0].Namespaces[0].Options().IO] = true
	}
	if len(modes) != len(IOModes) {
		t.Errorf("%v are %v", IOModes, modes)
	}
	for _, level := range LogLevels {
		if _, err := Parse("f", []byte(good+"log: {level: "+level+"}\n")); err != nil {
			t.Errorf("log: {level: %s}: %v", level, err)
		}
	}
}

// TestParseByteOrderMark: a file may begin with the mark (YAML 1.2.2, 5.2), which is not part of a key.
func TestParseByteOrderMark(t *testing.T) {
	c, err := Parse("a.yaml", []byte("\ufeffmetrics: 127.0.0.1:9090\r\nsubsystems:\r\n- nqn: nqn.2024-01.org.example:a\r\n"))
	if err != nil || c.Metrics != "127.0.0.1:9090" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestParseMalformed: text on which the YAML library panics is refused (found by FuzzParse).
func TestParseMalformed(t *testing.T) {
	var fe *FieldError
	_, err := Parse("f", []byte("subsystems: [{ qn:nnqn.2026-11.org.example:a, namespaces:![\x00\x00\x00\x7fume: m}]"))
	if !errors.As(err, &fe) || !strings.Contains(err.Error(), "no YAML") {
		t.Errorf("%v", err)
	}
}

// TestParseOneDocument: what may surround a document doesn't count as a second one.
func TestParseOneDocument(t *testing.T) {
	for _, text := range []string{
		"---\n" + good, "# ours\n---\n# all of it\n" + good, "%YAML 1.2\n---\n" + good, good + "...\n", good + "---\n",
	} {
		c, err := Parse("f", []byte(text))
		if err != nil || len(c.Subsystems) != 1 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestLargest: for each number that can't be negative the error says what its largest value is.
func TestLargest(t *testing.T) {
	var look func(x reflect.Type)
	look = func(x reflect.Type) {
		for x.Kind() == reflect.Pointer || x.Kind() == reflect.Slice {
			x = x.Elem()
		}
		if x.Kind() != reflect.Struct || reflect.PointerTo(x).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return
		}
		for _, f := range reflect.VisibleFields(x) {
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			isText := reflect.PointerTo(f.Type).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
			if unsigned := f.Type.Kind() >= reflect.Uint8 && f.Type.Kind() <= reflect.Uint64; unsigned && !isText && largest[key] == 0 {
				t.Errorf("%s of %v has no largest value", key, x)
			}
			look(f.Type)
		}
	}
	look(reflect.TypeFor[Config]())
}
