#!/usr/bin/env bash
# A root file system from a folder of locked packages: bootstrap-base.sh SUITE ARCH FOLDER TARGET.tar PACKAGE...
# The folder holds a Packages file and the files it names; their checksums were compared with the lock already,
# so apt is told to trust it. No network. Whoever runs it gets the same bytes: root, or a user with entries in /etc/subuid.
set -Eeuo pipefail

suite=$1 arch=$2 folder=$3 target=$4
shift 4
include=$(IFS=,; printf '%s' "$*")

# Out of the base: keys (made when a container starts), this host's names, and whatever carries a time of its own.
# The distribution's own example of its public archives stays as sources.list, so that people can build on top.
# shellcheck disable=SC2016  # mmdebstrap gives $1 to the hooks
exec mmdebstrap --mode=auto --variant=essential --format=tar \
  --architectures="$arch" --include="$include" \
  --aptopt='APT::Install-Recommends "false"' \
  --aptopt='Acquire::Languages "none"' \
  --customize-hook='rm -f "$1"/etc/ssh/ssh_host_*' \
  --customize-hook='rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/etc/machine-id "$1"/var/lib/dbus/machine-id' \
  --customize-hook='rm -rf "$1"/var/cache/ldconfig/aux-cache "$1"/var/log/apt/* "$1"/var/log/*.log' \
  --customize-hook='cd "$1" && rm -f etc/apt/sources.list && examples=usr/share/doc/apt/examples \
      && if [ -e "$examples/debian.sources" ]; then cp "$examples/debian.sources" etc/apt/sources.list.d/; \
         else cp "$examples/sources.list" etc/apt/; fi' \
  --customize-hook='mkdir -p "$1"/run/sshd' \
  "$suite" "$target" "deb [trusted=yes] copy://$folder ./"
