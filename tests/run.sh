#!/usr/bin/env bash
# Runs the tests: form and vet, a build for arm64, import directions, unit tests under the race
# detector, the whole programs, a moment of every fuzz target, and the demo. It stops at the first
# step that fails, and ends with what each step took and what could not be run here.
set -euo pipefail
cd "$(dirname "$0")/.."
# There is no C code here: only the race detector needs cgo, for which all is compiled once more.
export CGO_ENABLED=0

tmp=$(mktemp -d "${TMPDIR:-/tmp}/nvmeof-tests.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
skipped=$tmp/skipped
: >"$skipped"
summary=""

# step NAME COMMAND... runs a command as one step.
step() {
	local name=$1 began=$SECONDS
	shift
	printf '\n== %s\n' "$name"
	if ! "$@"; then
		printf '\nFAILED: %s (after %d s)\n' "$name" $((SECONDS - began))
		exit 1
	fi
	summary+=$(printf '  %-44s %4d s' "$name" $((SECONDS - began)))$'\n'
}

form() {
	local gofmt bad
	gofmt=$(go env GOROOT)/bin/gofmt
	[ -x "$gofmt" ] || gofmt=$(command -v gofmt) || { echo "no gofmt here" >>"$skipped"; return 0; }
	bad=$(find . -name '*.go' -not -path './bin/*' -exec "$gofmt" -l {} +)
	[ -z "$bad" ] || { printf 'not formatted (gofmt -w):\n%s\n' "$bad"; return 1; }
}

# can_race tells whether a C compiler works, which the race detector needs.
can_race() {
	printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' >"$tmp/probe.c"
	$(go env CC) -o "$tmp/probe" "$tmp/probe.c" >/dev/null 2>&1
}

vet() {
	go vet ./... && go vet -tags invariants ./internal/mem # which has a file for them
}

# gotest FLAGS... runs go test, and shows of its output what matters. What it tests has been vetted.
gotest() {
	go test -json -vet off "$@" 2>&1 | "$tmp/results" -skipped "$skipped"
}

race="" cgo=0
if can_race; then race="-race" cgo=1; else echo "race detector: it needs a C compiler (gcc)" >>"$skipped"; fi

[ "${NVMEOF_LINUX:-}" = 1 ] || echo "Linux as the peer: \`make test-linux\` runs it" >>"$skipped"

go build -o "$tmp/results" ./tests/results
step "form" form
step "vet" vet
step "build for arm64" env GOOS=linux GOARCH=arm64 go build -pgo=packaging/io.pgo -trimpath ./... # as TestRelease builds it
step "import directions" gotest -run '^TestImport' ./tests
unit() { CGO_ENABLED=$cgo gotest ${race:+"$race"} "$@"; }
step "unit tests, invariants checked${race:+, with the race detector}" unit -tags invariants -timeout 10m $(go list ./... | grep -v '/tests$')
if [ -n "$race" ]; then
	# It allocates itself, makes long simulations too long, and is no place for faults of memory (TestRaceSkips).
	step "what the race detector keeps from being seen" gotest -timeout 10m \
		-run '^(TestNoAllocation|TestNoAllocations|TestCongestion|TestLossIsSurvivable|TestLossIsSurvivableWhenBusy|TestThousandHosts|TestFullMap|TestFailedSyncOfMap|TestUnreadableMap|TestInaccessibleMap|TestVanished|TestQuota|TestCutWhileOpen|TestCutLoan|TestDeviceTakenAway)$' \
		./fabric/rdma/roce ./internal/loadgen ./nvme/target ./metrics ./persist
fi
step "whole programs" gotest -timeout 20m -count 1 -parallel 4 ./tests # at once, as they wait more than they compute
step "fuzz targets, ${FUZZTIME:-2s} each" tests/fuzz.sh "${FUZZTIME:-2s}"
step "demo, with short measurements" go run ./tests/demo -bin bin -runtime 200ms

printf '\nEverything passed, in %d minutes and %d seconds:\n%s' $((SECONDS / 60)) $((SECONDS % 60)) "$summary"
if [ -s "$skipped" ]; then
	printf 'Not run on this machine:\n'
	sed 's/^/  /' "$skipped"
fi
