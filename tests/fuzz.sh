#!/bin/sh
# Runs every fuzz target of the tree for the time given (default 2s), one after the other.
set -eu
cd "$(dirname "$0")/.."
time=${1:-2s}
go list -f '{{$p := .ImportPath}}{{range .TestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... |
while read -r pkg file; do
	[ -n "$pkg" ] || continue
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "$pkg $target"
	done
done | sort -u | while read -r pkg target; do
	printf '%s %s: ' "${pkg##*nvmeof/}" "$target"
	out=$(go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg" 2>&1) || { printf 'FAILED\n%s\n' "$out"; exit 1; }
	printf '%s\n' "$out" | sed -n 's/.*execs: \([0-9]*\) .*/\1 executions/p' | tail -n 1
done
