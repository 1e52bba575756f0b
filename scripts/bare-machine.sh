#!/usr/bin/env bash
# bare-machine.sh COMMAND...: runs COMMAND as the first thing ever done in a copy of this checkout on a bare Debian (its base
# system and nothing more), for example: scripts/bare-machine.sh scripts/demo.sh. Needs root and debootstrap; suite, mirror
# and proxy are this machine's own. KEEP=1 leaves the machine in place.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -gt 0 ]] || { echo "usage: bare-machine.sh COMMAND..." >&2; exit 2; }
for tool in debootstrap chroot; do
  command -v "$tool" >/dev/null || { echo "bare-machine: no $tool" >&2; exit 1; }
done

# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016  # apt-get's own variables
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
  awk -v suite="$suite" '$2 == suite && $3 == "main" { print $1; exit }')
root=$(mktemp -d)
chmod 755 "$root"
cleanup() {
  umount "$root/proc" 2>/dev/null || true
  [[ -n "${KEEP:-}" ]] || rm -rf --one-file-system "$root"
}
trap cleanup EXIT

debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" || { cat "$root.log"; exit 1; }
rm "$root.log" "$root/etc/apt/sources.list"
cp /etc/resolv.conf "$root/etc/"
cp -r /etc/apt/sources.list* /etc/apt/auth.conf* "$root/etc/apt/" 2>/dev/null || true
apt-config dump | grep -iE '^Acquire::[a-z]+::(proxy|[a-z-]+:)' >"$root/etc/apt/apt.conf.d/99machine" || true
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no service starts in there
chmod +x "$root/usr/sbin/policy-rc.d"
mount -t proc proc "$root/proc"

mkdir "$root/root/wengert"
git ls-files -zco --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -x -C "$root/root/wengert"
echo "bare-machine: $* on $suite in $root"
start=$SECONDS
chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
  sh -c 'cd /root/wengert && exec "$@"' _ "$@" </dev/null
echo "bare-machine: $((SECONDS - start)) s"
