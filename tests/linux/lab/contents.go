package lab

// packages are the packages that the tools come from.
var packages = []string{
	"busybox-static", "dash", "bash", "kmod", "nvme-cli", "fio", "iproute2", "rdma-core", "ibverbs-utils",
	"ibverbs-providers", "rdmacm-utils", "perftest", "e2fsprogs", "util-linux", "mount", "coreutils", "sqlite3",
}

// tools are the programs of an image, under usr; the rest is busybox.
var tools = []string{
	"bin/dash", "bin/bash", "bin/kmod", "bin/busybox",
	"sbin/nvme", "bin/fio",
	"bin/ip", "sbin/ip", "sbin/tc", "bin/rdma", "bin/ss",
	"bin/ibv_devinfo", "bin/ibv_rc_pingpong", "bin/rping", "bin/ib_write_bw", "bin/ib_read_bw", "bin/ib_send_bw", "bin/ib_atomic_bw",
	"sbin/mke2fs", "sbin/e2fsck", "sbin/blkdiscard", "sbin/fstrim", "bin/mount", "bin/umount", "bin/dmesg",
	"bin/dd", "bin/sha256sum", "bin/timeout", "bin/truncate", "bin/stat", "bin/sqlite3",
}

// besides are files that no tool names as a library: settings, and what is loaded at run time.
var besides = []string{
	"etc/mke2fs.conf", "etc/libibverbs.d/rxe.driver",
	"usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
	"usr/lib/x86_64-linux-gnu/libgcc_s.so.1", // pthread_exit loads it
}

// links are other names of the tools.
var links = map[string]string{
	"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64",
	"usr/bin/sh":        "dash", // busybox's would run its own modprobe, ip and mount
	"usr/sbin/modprobe": "../bin/kmod", "usr/sbin/rmmod": "../bin/kmod", "usr/sbin/lsmod": "../bin/kmod",
	"usr/sbin/mkfs.ext4": "mke2fs", "usr/sbin/fsck.ext4": "e2fsck",
}

// modules are the kernel modules of an image, without those that they depend on.
var modules = []string{
	"virtio_pci", "virtio_console", "virtio_net", "virtio_rng", "configfs",
	"rdma_rxe", "ib_uverbs", "rdma_ucm", "nvme_rdma", "nvme_tcp", "nvme_fabrics", "nvmet", "nvmet_rdma", "nvmet_tcp",
	"veth", "null_blk", "brd", "loop", "ext4", "8021q", "virtio_blk", "nfit", "nd_pmem",
	"sch_netem", "sch_ingress", "cls_matchall", "act_mirred", "ifb",
	"crc32_generic", "crc32_pclmul", "crc32c_generic", "crc32c_intel", "crc_t10dif", "crct10dif_generic", "crc64_rocksoft", "crc64_rocksoft_generic", "libcrc32c",
	"nvme_auth", "nvme_keyring", "hmac", "sha256_generic", "sha512_generic", "dh_generic",
}
