#!/usr/bin/env bash
# Makes what is released, in the directory DIST: for amd64 and arm64 a tar file and a Debian package,
# each with static programs, manual pages and completions. The same commit gives the same bytes.
#
#   [ARCHS=amd64] packaging/dist.sh DIST VERSION LDFLAGS
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$1 version=$2 ldflags=$3
go=${GO:-go}
umask 022

# Debian's versions begin with a digit and have no meaning for "-".
case $version in
v[0-9]*) deb=${version#v} ;;
[0-9]*.*) deb=$version ;;
*) deb=0~$version ;;
esac
deb=${deb//-/+}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$dist"

# programs ARCH links the programs in $work/bin-ARCH, unless they are there.
programs() {
	[ -d "$work/bin-$1" ] && return
	CGO_ENABLED=0 GOOS=linux GOARCH=$1 $go build -pgo=packaging/io.pgo -trimpath -ldflags "$ldflags" -o "$work/bin-$1/" ./cmd/nvmetgt ./cmd/nvmeinit
}

# What is the same for every architecture: written by programs of this one.
common=$work/common
native=$($go env GOHOSTARCH)
programs "$native"
mkdir -p "$common/man" "$common/bash" "$common/zsh" "$common/fish"
for p in nvmetgt nvmeinit; do
	"$work/bin-$native/$p" man | gzip -9n >"$common/man/$p.1.gz"
	"$work/bin-$native/$p" completion bash >"$common/bash/$p"
	"$work/bin-$native/$p" completion zsh >"$common/zsh/_$p"
	"$work/bin-$native/$p" completion fish >"$common/fish/$p.fish"
done

# Links of the documents to files that lie elsewhere in a package, and to sources, which aren't in it.
links='s,\]\((\.\./)?LICENSE\),](\1copyright),g
s,\]\((\.\./)?packaging/(nvmetgt\.yaml)\),](\1\2),g
s,\]\((\.\./)?metrics/(alerts|dashboards)/([^)]*)\),](\1../../nvme-anywhere/\3),g
s,\]\((\.\./)?((blockdev|cmd|examples|fabric|internal|nvme|persist|statedir|tests)(/[^)]*)?)\),](https://'$($go list -m)'/tree/main/\2),g'

# put MODE FILE... DIRECTORY installs files under the root of a package.
put() {
	local mode=$1 to=${*: -1}
	install -d "$to"
	install -m "$mode" "${@:2:$#-2}" "$to"
}

# tree ARCH ROOT makes what both kinds of package hold.
tree() {
	local root=$2
	programs "$1"
	put 755 "$work/bin-$1"/* "$root/bin"
	put 644 "$common"/man/* "$root/share/man/man1"
	put 644 "$common"/bash/* "$root/share/bash-completion/completions"
	put 644 "$common"/zsh/* "$root/share/zsh/vendor-completions"
	put 644 "$common"/fish/* "$root/share/fish/vendor_completions.d"
	put 644 README.md ARCHITECTURE.md BENCHMARKS.md packaging/nvmetgt.yaml "$root/share/doc/nvme-anywhere"
	put 644 docs/*.md docs/*.svg "$root/share/doc/nvme-anywhere/docs" # as here, so that links work
	sed -Ei "$links" "$root"/share/doc/nvme-anywhere/*.md "$root"/share/doc/nvme-anywhere/docs/*.md
	install -m 644 LICENSE "$root/share/doc/nvme-anywhere/copyright"
	put 644 metrics/alerts/nvmeof.yml metrics/dashboards/nvmeof.json "$root/share/nvme-anywhere"
}

# archive ARCH makes the tar file.
archive() {
	local name=nvme-anywhere-${version}-linux-$1
	cp -a "$work/$1" "$work/$name"
	put 644 packaging/nvmetgt.service "$work/$name/share/nvme-anywhere"
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" |
		gzip -n >"$dist/$name.tar.gz"
}

# package ARCH makes the Debian package.
package() {
	local root=$work/deb-$1 f
	mkdir -p "$root/DEBIAN"
	cp -a "$work/$1" "$root/usr"
	put 644 packaging/nvmetgt.service "$root/lib/systemd/system"
	put 640 packaging/nvmetgt.yaml "$root/etc/nvmetgt"
	sed -e "s/@VERSION@/$deb/" -e "s/@ARCH@/$1/" -e "s/@SIZE@/$(du -sk "$root" | cut -f1)/" packaging/deb/control >"$root/DEBIAN/control"
	for f in postinst prerm postrm; do install -m 755 "packaging/deb/$f" "$root/DEBIAN/"; done
	install -m 644 packaging/deb/conffiles "$root/DEBIAN/"
	(cd "$root" && find usr lib -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
	find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0 touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
	dpkg-deb --root-owner-group -Zxz -z2 --build "$root" "$dist/nvme-anywhere_${deb}_$1.deb" >/dev/null
}

for arch in ${ARCHS:-amd64 arm64}; do
	tree "$arch" "$work/$arch"
	archive "$arch"
	if command -v dpkg-deb >/dev/null; then
		package "$arch"
	else
		echo "dist: no dpkg-deb here, so no Debian package for $arch" >&2
	fi
done
(cd "$dist" && sha256sum nvme-anywhere-"$version"-linux-*.tar.gz $(ls nvme-anywhere_"${deb}"_*.deb 2>/dev/null) >SHA256SUMS)
