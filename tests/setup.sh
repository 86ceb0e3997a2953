#!/bin/sh
# Installs what the tests use beyond Go, git and make: a C compiler for the race detector, and
# tshark to decode what the programs send. Works on Debian and its kin, as root or with a sudo
# that asks nothing; elsewhere it says what will be skipped. It never fails.
set -u

missing=""
command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v tshark >/dev/null 2>&1 || missing="$missing tshark"
[ -n "$missing" ] || exit 0

run=""
if [ "$(id -u)" != 0 ]; then
	if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
		run="sudo -n"
	else
		echo "setup: not root, so these can't be installed:$missing"
		echo "setup: the tests that need them will be skipped"
		exit 0
	fi
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "setup: no apt-get here; install by hand for the full tests:$missing"
	exit 0
fi
echo "setup: installing$missing"
log=$(mktemp)
if ! { $run apt-get update && DEBIAN_FRONTEND=noninteractive $run apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 5 "$log"
	echo "setup: could not install$missing; the tests that need them will be skipped"
fi
rm -f "$log"
