#!/usr/bin/env bash
# Runs the build for arm64 under QEMU's user mode emulation: unit tests, and either program against that of this machine
# over both transports. The emulation lacks io_uring, asynchronous I/O, preadv2, IPV6_DONTFRAG, TCP_INFO, namespaces,
# the choice among several sockets of an address, and the addresses of bus errors: tests of these, and of files, aren't
# here. The kernel is this machine's, with its pages.
set -euo pipefail
cd "$(dirname "$0")/.."

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || {
	echo "test-arm: there is no qemu-aarch64-static (Debian: apt install qemu-user-static)"
	exit 1
}
# Of a processor with DC CVAP, QEMU before 8.1 says that it has the instruction, and then knows it not.
export QEMU_CPU=cortex-a72

tmp=$(mktemp -d "${TMPDIR:-/tmp}/nvmeof-arm.XXXXXX")
target=
trap '[ -z "$target" ] || kill "$target" 2>/dev/null; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

emulated() { GOARCH=arm64 CGO_ENABLED=0 go test -exec "$qemu" -short -tags invariants "$@"; }
emulated -run '^(TestSpan|TestFlusher|TestStore|TestLines|TestDurableLines|TestAtomicLines)$' ./persist
several='^(TestStrays|TestGroupSpread|TestStaleInGroup)$|^TestProvider$/^engines=(1\+3|8\+2)$'
emulated -skip '^(TestOwnAddress|TestHostClose|TestMissingPages|Example_provision)$|'"$several" ./nvme/... \
	./fabric/tcp/... ./fabric/rdma ./fabric/rdma/roce/wire ./fabric/rdma/cm/mad ./fabric/rdma/softrnic \
	./internal/prefetch ./internal/ring

go build -o "$tmp/here/" ./cmd/nvmetgt ./cmd/nvmeinit
GOARCH=arm64 CGO_ENABLED=0 go build -o "$tmp/arm/" ./cmd/nvmetgt ./cmd/nvmeinit
head -c 1048576 /dev/urandom >"$tmp/data"

# between NAME TARGET HOST has a host write to a target and read back, over both transports.
between() {
	local name=$1 serve=$2 host=$3
	$serve serve --volume mem:16MiB --listen rdma://127.0.0.64:4420 --listen tcp://127.0.0.64:4420 >"$tmp/log" 2>&1 &
	target=$!
	until grep -q '^ready' "$tmp/log"; do
		kill -0 "$target" 2>/dev/null || { cat "$tmp/log"; return 1; }
		sleep 0.1
	done
	for transport in rdma tcp; do
		printf '%s, %s: ' "$name" "$transport"
		$host write -t "$transport" -a 127.0.0.64 --input "$tmp/data" --verify --quiet
		$host bench -t "$transport" -a 127.0.0.64 --rw randrw --bsrange 4k-128k --iodepth 8 --verify crc32c --runtime 3s >"$tmp/bench" ||
			{ cat "$tmp/bench"; return 1; }
		grep '^verified' "$tmp/bench"
	done
	kill "$target"
	wait "$target"
	target=
}
between "target on arm64" "$qemu $tmp/arm/nvmetgt" "$tmp/here/nvmeinit"
between "host on arm64" "$tmp/here/nvmetgt" "$qemu $tmp/arm/nvmeinit"
between "both on arm64" "$qemu $tmp/arm/nvmetgt" "$qemu $tmp/arm/nvmeinit"
