#!/usr/bin/env bash
# Runs every fuzz target of the tree for the time given (default 2s), one after the other. What
# breaks a target is kept in its package's testdata/fuzz, where `go test` runs it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-2s}
export GOGC=${GOGC:-1000} # whole connections leave much garbage
tmp=$(mktemp -d "${TMPDIR:-/tmp}/nvmeof-fuzz.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

# fuzz PACKAGE DIRECTORY TARGET runs one target; its program is built once a package.
fuzz() {
	local out
	out=$(cd "$2" && "$tmp/fuzz.test" -test.run '^$' -test.fuzz "^$3\$" -test.fuzztime "$time" -test.fuzzminimizetime 1x -test.fuzzcachedir "$tmp/cache/$1" 2>&1) || {
		# Go's fuzzer may report its own end of time as a failure.
		if grep -q 'context deadline exceeded' <<<"$out" && ! grep -q 'Failing input' <<<"$out"; then
			echo "  $1 $3: out of time"
			return 0
		fi
		printf '  %s %s: FAILED\n%s\n' "$1" "$3" "$out"
		return 1
	}
	echo "  $1 $3: $(sed -n 's/.*execs: \([0-9]*\) .*/\1/p' <<<"$out" | tail -n 1) executions"
}

found=0
while IFS=$'\t' read -r pkg dir files; do
	# shellcheck disable=SC2086 # names of Go files have no spaces
	targets=$(cd "$dir" && sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $files | sort)
	[ -n "$targets" ] || continue
	go test -c -fuzz . -o "$tmp/fuzz.test" "$pkg"
	for target in $targets; do
		fuzz "${pkg##*/nvmeof/}" "$dir" "$target"
		found=$((found + 1))
	done
done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}{{end}}' ./...)
[ "$found" -gt 0 ] || { echo "no fuzz target found"; exit 1; }
echo "  $found targets"
