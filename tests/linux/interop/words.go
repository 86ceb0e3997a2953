package main

// headings are those of the test functions.
var headings = map[string]string{
	"TestLinux": "NVMe over Fabrics",
}

// descriptions say what a row is; a row without one has its test's name.
var descriptions = map[string]string{
	"":                      "all together",
	"host/volume/commands":  "Linux host → nvmetgt: every command of nvme-cli",
	"host/volume/fio":       "… fio, verified: 4 KiB to 256 KiB, depth 16, 1, 2 and 4 queues; over TCP with digests too",
	"host/volume/discard":   "… discard and write zeroes reach the volume",
	"host/volume/ipv6":      "… fio over IPv6",
	"host/no-in-capsule":    "… fio without in-capsule data",
	"refusals/wrong-nqn":    "Linux host prints the same of nvmetgt and of Linux's target: wrong NQN",
	"refusals/wrong-port":   "… wrong port",
	"refusals/wrong-host":   "… host not allowed",
	"refusals/full-target":  "… target full",
	"refusals/deep-queue":   "… queue too deep",
	"target":                "nvmeinit → Linux target: discover, connect, identify, write, read, verify, bench, refusals",
	"faults/restart":        "fio goes on: nvmetgt killed and started again",
	"faults/cut":            "… network cut for longer than the keep-alive timeout",
	"faults/brief-cut":      "… network cut for a second",
	"faults/freeze":         "… host frozen for longer than the keep-alive timeout",
	"filesystem/own":        "ext4: thousands of files, whole over the other transport",
	"filesystem/of-another": "ext4: the files that another kernel wrote are whole",
}

func heading(group string) string {
	if h := headings[group]; h != "" {
		return h
	}
	return group
}

func description(what string) string {
	if d := descriptions[what]; d != "" {
		return d
	}
	return what
}
