#!/bin/sh
# What TestPackage runs in a copy of the machine that is thrown away: install, run, upgrade, remove
# and purge the package $1.
set -eu
deb=$1

fail() { echo "FAILED: $*"; exit 1; }
mode() { stat -c '%U:%G %a' "$1"; }
is() { [ "$1" = "$2" ] || fail "$3: $1, want $2"; }

# As systemd does for the unit.
run() {
	install -d -o nvmetgt -g nvmetgt -m 755 /run/nvmetgt /var/lib/nvmetgt
	setpriv --reuid=nvmetgt --regid=nvmetgt --init-groups --no-new-privs \
		--inh-caps=-all,+net_admin,+net_bind_service --ambient-caps=-all,+net_admin,+net_bind_service \
		--bounding-set=-all,+net_admin,+net_bind_service \
		nvmetgt serve --config /etc/nvmetgt/nvmetgt.yaml >/tmp/nvmetgt.log 2>&1 &
	target=$!
	for _ in $(seq 300); do
		grep -q ^ready /tmp/nvmetgt.log && return
		kill -0 $target 2>/dev/null || { cat /tmp/nvmetgt.log; fail "the target ended"; }
		sleep 0.1
	done
	fail "the target isn't ready after 30 s"
}

ip link set lo up
mount -t proc proc /proc
rm -f /var/lib/man-db/auto-update # the index of all manual pages takes long to make anew, five times

echo "== install"
dpkg -i "$deb"
is "$(mode /etc/nvmetgt)" "root:nvmetgt 770" "/etc/nvmetgt"
is "$(mode /etc/nvmetgt/nvmetgt.yaml)" "root:nvmetgt 640" "the configuration"
nvmetgt check /etc/nvmetgt/nvmetgt.yaml
for p in nvmetgt nvmeinit; do
	gzip -dc /usr/share/man/man1/$p.1.gz >/tmp/page
	if command -v groff >/dev/null; then
		said=$(groff -k -man -Tutf8 -ww /tmp/page 2>&1 >/dev/null)
		[ -z "$said" ] || fail "man page of $p: $said"
	fi
	bash -c "source /usr/share/bash-completion/completions/$p" || fail "completion of $p"
done
if command -v systemd-analyze >/dev/null; then
	said=$(systemd-analyze verify --man=no nvmetgt.service 2>&1 | grep nvmetgt || true)
	[ -z "$said" ] || fail "the unit: $said"
	systemd-analyze security --offline=yes --threshold=40 nvmetgt.service >/tmp/security 2>&1 ||
		{ tail -n 3 /tmp/security; fail "the unit protects too little"; }
	tail -n 1 /tmp/security
fi

echo "== run"
run
nvmeinit connect -t tcp -a 127.0.0.1 >/dev/null || fail "connect over TCP"
nvmeinit connect -t rdma -a 127.0.0.1 >/dev/null || fail "connect over RDMA"
nvmetgt ctl add-namespace --volume /var/lib/nvmetgt/disk.img --size 1MiB
nvmetgt ctl save
grep -q disk.img /etc/nvmetgt/nvmetgt.yaml || fail "what was saved isn't in the configuration"
is "$(stat -c %a /etc/nvmetgt/nvmetgt.yaml)" 640 "the configuration that was saved"
nvmetgt ctl reload
kill -TERM $target
wait $target || fail "the target ended with $?"
grep -q msg=drained /tmp/nvmetgt.log || fail "it wasn't drained"

echo "== upgrade"
dpkg -i "$deb"
grep -q disk.img /etc/nvmetgt/nvmetgt.yaml || fail "the upgrade changed the configuration"

echo "== remove"
dpkg -r nvme-anywhere
[ ! -e /usr/bin/nvmetgt ] || fail "the program is still there"
[ -e /etc/nvmetgt/nvmetgt.yaml ] || fail "the configuration is gone before purge"

echo "== purge"
dpkg -P nvme-anywhere
[ ! -e /etc/nvmetgt ] || fail "/etc/nvmetgt is still there"
[ ! -e /var/lib/nvmetgt/state ] || fail "state is still there"
[ -e /var/lib/nvmetgt/disk.img ] || fail "a volume is gone"
! getent passwd nvmetgt >/dev/null || fail "the user is still there"
rm -r /var/lib/nvmetgt /run/nvmetgt
dpkg -i "$deb" >/dev/null
dpkg -P nvme-anywhere
left=$(find /etc /usr /var /lib/systemd /run -xdev \( -name '*nvmetgt*' -o -name '*nvme-anywhere*' \))
[ -z "$left" ] || fail "left: $left"
echo "== done"
