#!/bin/sh
# Runs the tests: vet, unit tests under the race detector, a few seconds of every fuzz target,
# and the whole programs. What can't run on this machine is named at the end.
set -eu
cd "$(dirname "$0")/.."
skipped=""

say() { printf '\n== %s\n' "$1"; }

say "go vet"
go vet ./...

race="-race"
if ! command -v cc >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1; then
	race=""
	skipped="$skipped
  the race detector: it needs a C compiler (gcc)"
fi
command -v tshark >/dev/null 2>&1 || skipped="$skipped
  decoding a capture of ours with tshark: it is not installed"

say "unit tests${race:+, with the race detector}"
go test $race -timeout 10m $(go list ./... | grep -v '/tests$')

say "fuzz targets, ${FUZZTIME:-2s} each"
tests/fuzz.sh "${FUZZTIME:-2s}"

say "whole programs"
go test -timeout 20m -count=1 ./tests

if [ -n "$skipped" ]; then
	printf '\nskipped on this machine:%s\n' "$skipped"
fi
