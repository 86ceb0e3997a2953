package main

// headings are those of the test functions.
var headings = map[string]string{
	"TestLinux":   "NVMe over Fabrics",
	"TestRNIC":    "The RNIC by itself: the programs of examples/ against rdma-core and perftest over rxe",
	"TestNetem":   "Faulty networks (netem), over RDMA",
	"TestStore":   "nvmetgt in a machine, on an NVDIMM (ext4 with DAX) and on a disk",
	"TestLive":    "Changes of a target in use",
	"TestPaths":   "Two paths to Linux's target",
	"TestSilence": "A host that is silent for minutes, over RDMA: probed, and undisturbed",
	"TestSpeed":   "Speed beside Linux with Linux, in one machine",
}

// descriptions say what a row is, with its subject before a colon, which neighbours share; a row
// without one has its test's name.
var descriptions = map[string]string{ //nolint:gosec // the secrets in it are names of tests
	"":                                           "all of it: together",
	"auth/host/sha256-null-false":                "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: SHA-256, no Diffie-Hellman",
	"auth/host/sha384-null-true":                 "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: SHA-384, no Diffie-Hellman, both ways",
	"auth/host/sha512-ffdhe2048-false":           "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: SHA-512, ffdhe2048",
	"auth/host/sha256-ffdhe3072-true":            "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: SHA-256, ffdhe3072, both ways",
	"auth/host/sha512-ffdhe4096-true":            "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: SHA-512, ffdhe4096, both ways",
	"auth/host/sha384-ffdhe6144-false":           "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: SHA-384, ffdhe6144",
	"auth/host/sha512-ffdhe8192-true":            "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: SHA-512, ffdhe8192, both ways",
	"auth/host/wrong-secret":                     "nvmetgt refuses a Linux host, or the host nvmetgt: wrong secret of the host",
	"auth/host/wrong-controller-secret":          "nvmetgt refuses a Linux host, or the host nvmetgt: wrong secret of the controller",
	"auth/host/no-secret":                        "nvmetgt refuses a Linux host, or the host nvmetgt: no secret",
	"auth":                                       "DH-HMAC-CHAP: both sides",
	"auth/host-reauthenticates":                  "Linux host authenticates itself (DH-HMAC-CHAP) to nvmetgt, fio verified: anew, with new secrets, under load",
	"auth/target":                                "nvmeinit authenticates itself to Linux's target: the same choices, and wrong secrets",
	"host/volume/commands":                       "Linux host uses nvmetgt: every command of nvme-cli",
	"host/volume/fio":                            "Linux host uses nvmetgt: fio, verified, 4 KiB to 256 KiB, depth 16, 1, 2 and 4 queues; over TCP digests as well",
	"host/volume/discard":                        "Linux host uses nvmetgt: discard and write zeroes reach the volume",
	"host/volume/ipv6":                           "Linux host uses nvmetgt: fio over IPv6",
	"host/no-in-capsule":                         "Linux host uses nvmetgt: fio without in-capsule data",
	"host/engines":                               "Linux host uses nvmetgt: fio with three engines, each of which has a queue",
	"refusals/wrong-nqn":                         "Linux host prints the same of nvmetgt as of Linux's target: wrong NQN",
	"refusals/wrong-port":                        "Linux host prints the same of nvmetgt as of Linux's target: wrong port",
	"refusals/wrong-host":                        "Linux host prints the same of nvmetgt as of Linux's target: host not allowed",
	"refusals/full-target":                       "Linux host prints the same of nvmetgt as of Linux's target: target full",
	"refusals/deep-queue":                        "Linux host prints the same of nvmetgt as of Linux's target: queue too deep",
	"target":                                     "nvmeinit uses Linux's target: discover, connect, identify, write, read, verify, bench, refusals",
	"target-ipv6":                                "nvmeinit uses Linux's target: bench over IPv6",
	"faults/restart":                             "Linux host under load goes on, data whole: nvmetgt killed and started again",
	"faults/cut":                                 "Linux host under load goes on, data whole: network cut for longer than the keep alive timeout",
	"faults/brief-cut":                           "Linux host under load goes on, data whole: network cut for a second",
	"faults/freeze":                              "Linux host under load goes on, data whole: host frozen for longer than the keep alive timeout",
	"rc-pingpong/server-ipv4":                    "ibv_rc_pingpong -c → ours, every byte verified: 4 KiB",
	"rc-pingpong/client-ipv4":                    "ours → ibv_rc_pingpong -c, every byte verified: 4 KiB",
	"rc-pingpong/server-ipv6":                    "ibv_rc_pingpong -c → ours, every byte verified: 4 KiB over IPv6",
	"rc-pingpong/client-ipv6":                    "ours → ibv_rc_pingpong -c, every byte verified: 4 KiB over IPv6",
	"rc-pingpong/server-large":                   "ibv_rc_pingpong -c → ours, every byte verified: 1 MiB",
	"rc-pingpong/client-large":                   "ours → ibv_rc_pingpong -c, every byte verified: 1 MiB",
	"rc-pingpong/server-small":                   "ibv_rc_pingpong -c → ours, every byte verified: 2 bytes",
	"rc-pingpong/client-small":                   "ours → ibv_rc_pingpong -c, every byte verified: 2 bytes",
	"rping/server-64":                            "rping -V → ours, every byte verified: 64 bytes",
	"rping/client-64":                            "ours → rping, every byte verified: 64 bytes",
	"rping/server-60000":                         "rping -V → ours, every byte verified: 60000 bytes",
	"rping/client-60000":                         "ours → rping, every byte verified: 60000 bytes",
	"perftest/server-ib_write_bw-65536":          "ib_write_bw → ours: RDMA WRITE, 64 KiB",
	"perftest/client-ib_write_bw-65536":          "ours → ib_write_bw: RDMA WRITE, 64 KiB",
	"perftest/server-ib_read_bw-65536":           "ib_read_bw → ours: RDMA READ, 64 KiB",
	"perftest/client-ib_read_bw-65536":           "ours → ib_read_bw: RDMA READ, 64 KiB",
	"perftest/server-ib_send_bw-65536":           "ib_send_bw → ours: SEND, 64 KiB",
	"perftest/client-ib_send_bw-65536":           "ours → ib_send_bw: SEND, 64 KiB",
	"perftest/server-ib_send_bw-1000":            "ib_send_bw → ours: SEND, 1000 bytes",
	"perftest/client-ib_send_bw-1000":            "ours → ib_send_bw: SEND, 1000 bytes",
	"perftest/server-ib_atomic_bw-FETCH_AND_ADD": "ib_atomic_bw → ours: fetch and add",
	"perftest/client-ib_atomic_bw-FETCH_AND_ADD": "ours → ib_atomic_bw: fetch and add",
	"perftest/server-ib_atomic_bw-CMP_AND_SWAP":  "ib_atomic_bw → ours: compare and swap",
	"perftest/client-ib_atomic_bw-CMP_AND_SWAP":  "ours → ib_atomic_bw: compare and swap",
	"nvmeinit/loss-0.1%-out":                     "nvmeinit → Linux target, every byte verified: 0.1% lost from Linux",
	"nvmeinit/loss-0.1%-in":                      "nvmeinit → Linux target, every byte verified: 0.1% lost to Linux",
	"nvmeinit/loss-1%-out":                       "nvmeinit → Linux target, every byte verified: 1% lost from Linux",
	"nvmeinit/loss-1%-in":                        "nvmeinit → Linux target, every byte verified: 1% lost to Linux",
	"nvmeinit/loss-5%-out":                       "nvmeinit → Linux target, every byte verified: 5% lost from Linux",
	"nvmeinit/loss-5%-in":                        "nvmeinit → Linux target, every byte verified: 5% lost to Linux",
	"nvmeinit/reordering-out":                    "nvmeinit → Linux target, every byte verified: one packet in ten 2 ms late from Linux",
	"nvmeinit/reordering-in":                     "nvmeinit → Linux target, every byte verified: one packet in ten 2 ms late to Linux",
	"nvmeinit/duplication-out":                   "nvmeinit → Linux target, every byte verified: 5% twice from Linux",
	"nvmeinit/duplication-in":                    "nvmeinit → Linux target, every byte verified: 5% twice to Linux",
	"kernel-host/loss-0.1%-out":                  "Linux host (register_always=N) → nvmetgt, fio verified: 0.1% lost from Linux",
	"kernel-host/loss-0.1%-in":                   "Linux host (register_always=N) → nvmetgt, fio verified: 0.1% lost to Linux",
	"kernel-host/loss-1%-out":                    "Linux host (register_always=N) → nvmetgt, fio verified: 1% lost from Linux",
	"kernel-host/loss-1%-in":                     "Linux host (register_always=N) → nvmetgt, fio verified: 1% lost to Linux",
	"kernel-host/loss-5%-out":                    "Linux host (register_always=N) → nvmetgt, fio verified: 5% lost from Linux",
	"kernel-host/loss-5%-in":                     "Linux host (register_always=N) → nvmetgt, fio verified: 5% lost to Linux",
	"kernel-host/reordering-out":                 "Linux host (register_always=N) → nvmetgt, fio verified: one packet in ten 2 ms late from Linux",
	"kernel-host/reordering-in":                  "Linux host (register_always=N) → nvmetgt, fio verified: one packet in ten 2 ms late to Linux",
	"kernel-host/duplication-out":                "Linux host (register_always=N) → nvmetgt, fio verified: 5% twice from Linux",
	"kernel-host/duplication-in":                 "Linux host (register_always=N) → nvmetgt, fio verified: 5% twice to Linux",
	"registering-host":                           "Linux host (register_always=Y) → nvmetgt, 1% lost both ways: it comes back, data verified",
	"power-cuts":                                 "its power cut while a host writes, blocks checked: nothing acknowledged lost, nothing torn",
	"database":                                   "its power cut with that of a Linux host with SQLite on ext4: every committed row there",
	"device-faults/full":                         "its disk fails, the host is told why: file system full",
	"device-faults/read-only":                    "its disk fails, the host is told why: disk read-only",
	"device-faults/broken":                       "its disk fails, the host is told why: disk broken",
	"device-faults/vanished":                     "its disk fails, the host is told why: disk taken away",
	"figures":                                    "throughput under loss, both ways, beside Linux with Linux",
	"live":                                       "Linux host goes on, and notices: namespaces come, go and grow, ANA states, paths, hosts; namespaces that the host creates, sanitize",
	"paths":                                      "nvmeinit reads and writes by RDMA and TCP at once, verified: a port is taken away, comes back, and becomes inaccessible (ANA); the namespace moves to another ANA group",
	"link":                                       "null volumes, one queue: each pair over a link of its own (veth)",
	"one-address":                                "null volumes, one queue: host and target at one address",
	"filesystem/own":                             "ext4 with thousands of files on nvmetgt: written over RDMA, whole over TCP",
	"filesystem/of-another":                      "ext4 with thousands of files on nvmetgt: written by the other kernel, whole on this one",
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
