#!/bin/sh
# Installs what the tests use beyond Go: a C compiler for the race detector, tshark, which
# decodes what the programs send, fio, whose output is read beside that of nvmeinit bench,
# chromium, which looks at pages, Prometheus, which scrapes the programs, and what makes file
# systems of XFS and Btrfs, whose writes wait elsewhere than ext4's. Works on Debian and its kin,
# as root or with a sudo that asks nothing; elsewhere it says what will be skipped. It never
# fails: tests/run.sh looks for itself.
set -u

missing=""
command -v "$(go env CC)" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v tshark >/dev/null 2>&1 || missing="$missing tshark"
command -v fio >/dev/null 2>&1 || missing="$missing fio"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v mkfs.xfs >/dev/null 2>&1 || missing="$missing xfsprogs"
command -v mkfs.btrfs >/dev/null 2>&1 || missing="$missing btrfs-progs"
[ -n "$missing" ] || exit 0

give_up() {
	echo "setup: $1, so these are not installed:$missing"
	echo "setup: the tests that need them will be skipped"
	exit 0
}

as_root=""
if [ "$(id -u)" != 0 ]; then
	as_root="sudo -n"
	$as_root true 2>/dev/null || give_up "not root, and no sudo that asks nothing"
fi
command -v apt-get >/dev/null 2>&1 || give_up "no apt-get here"

echo "setup: installing$missing"
log=$(mktemp)
# The tests start Prometheus themselves: Debian's service of it stays off.
policy=/usr/sbin/policy-rc.d
[ -e "$policy" ] && policy=""
cleanup() {
	rm -f "$log"
	[ -z "$policy" ] || $as_root rm -f "$policy"
}
trap cleanup EXIT
[ -z "$policy" ] || printf '#!/bin/sh\nexit 101\n' | $as_root install -m 755 /dev/stdin "$policy"
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2"
if ! { $apt update && $apt install -y --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 3 "$log"
	give_up "apt-get failed"
fi
case $missing in
*prometheus*) $as_root systemctl disable prometheus >>"$log" 2>&1 || true ;;
esac
