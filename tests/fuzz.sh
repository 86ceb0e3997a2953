#!/usr/bin/env bash
# Runs every fuzz target of the tree for the time given (default 2s) with one worker: as many at once
# as there are processors, while programs of further packages are built. The first that fails is shown
# with its input, and ends the others. The input is kept in its package's testdata/fuzz, where `go test`
# runs it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-2s}
most=$(nproc)
export CGO_ENABLED=0
export GOGC=${GOGC:-1000} # whole connections leave much garbage
tmp=$(mktemp -d "${TMPDIR:-/tmp}/nvmeof-fuzz.XXXXXX")
declare -A running=() # directories and names of targets, by process

stop() {
	[ ${#running[@]} = 0 ] || kill "${!running[@]}" 2>/dev/null || true
	wait
	rm -rf "$tmp"
}
trap stop EXIT
trap 'exit 130' INT TERM

# begin PROGRAM DIRECTORY TARGET starts a target when there is room for one more.
begin() {
	[ ${#running[@]} -lt "$most" ] || await
	(cd "$2" && exec "$1" -test.run '^$' -test.fuzz "^$3\$" -test.parallel 1 -test.fuzztime "$time" -test.fuzzminimizetime 1x \
		-test.fuzzcachedir "$tmp/cache/$2" >"$tmp/$BASHPID.out" 2>&1) &
	running[$!]="$2 $3"
}

# await waits for the end of a target, and says what came of it.
await() {
	local pid code=0 name out input
	wait -n -p pid "${!running[@]}" || code=$?
	name=${running[$pid]} out=$tmp/$pid.out
	unset "running[$pid]"
	input=$(sed -n 's/.*Failing input written to //p' "$out")
	if [ "$code" = 0 ]; then
		echo "  $name: $(sed -n 's/.*execs: \([0-9]*\) .*/\1/p' "$out" | tail -n 1) executions"
	elif [ -z "$input" ] && grep -q 'context deadline exceeded' "$out"; then
		echo "  $name: out of time" # Go's fuzzer may report its own end of time as a failure
	else
		echo "  $name: FAILED"
		cat "$out" ${input:+"${name% *}/$input"}
		exit 1
	fi
	rm "$out"
}

found=0
while IFS=$'\t' read -r pkg dir files; do
	# shellcheck disable=SC2086 # names of Go files have no spaces
	targets=$(cd "$dir" && sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $files | sort)
	[ -n "$targets" ] || continue
	name=${pkg##*/nvmeof/}
	program=$tmp/${name//\//-}.test
	go test -c -vet off -fuzz . -o "$program" "$pkg"
	for target in $targets; do
		begin "$program" "$name" "$target"
		found=$((found + 1))
	done
done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}{{end}}' ./...)
while [ ${#running[@]} -gt 0 ]; do await; done
[ "$found" -gt 0 ] || { echo "no fuzz target found"; exit 1; }
echo "  $found targets"
