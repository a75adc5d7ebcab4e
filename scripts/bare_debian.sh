#!/usr/bin/env bash
# Proves the README's two commands in a bare Debian 12: a fresh root folder with nothing but git and ca-certificates, in which a
# clone of HEAD is set up, built, run and tested. Says how long each step took and how much disk it filled.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/bare_debian.sh [--without-opencv] [--keep]
  --without-opencv  with TRAINER_WITH_OPENCV=OFF
  --keep            leave the root folder when done, instead of removing it
Needs root, debootstrap and 8 GB below TMPDIR (default /tmp). What this machine knows about reaching packages is used inside too:
apt's sources and settings (where this is Debian 12 as well), pip's settings, and certificates in /usr/local/share/ca-certificates.
TEXT
}

keep=false opencv=ON
for argument in "$@"; do
  case "$argument" in
    --without-opencv) opencv=OFF ;;
    --keep) keep=true ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "bare_debian: unknown argument '$argument'" >&2; exit 2 ;;
  esac
done
fail() { echo "bare_debian: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || fail "debootstrap is missing; install it with: apt-get install debootstrap"
# In a mount namespace of its own: the mounts below end with this process, even when it is killed.
if [ -z "${BARE_DEBIAN_UNSHARED:-}" ]; then BARE_DEBIAN_UNSHARED=1 exec unshare --mount "$0" "$@"; fi

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
base=$(mktemp -d "${TMPDIR:-/tmp}/bare-debian-XXXXXX")
chmod 755 "$base"
report=()

clean_up() {
  local mount
  for mount in proc sys dev; do
    if mountpoint -q "$base/$mount"; then umount --recursive --lazy "$base/$mount"; fi
  done
  if $keep; then echo "bare_debian: the root folder is $base" >&2; else rm -rf --one-file-system "$base"; fi
}
trap clean_up EXIT

# step NAME COMMAND...
step() {
  local name=$1 start=$SECONDS before
  shift
  before=$(du -smx "$base" | cut -f 1)
  echo "== $name" >&2
  "$@" || fail "$name: failed"
  report+=("$(printf '%-16s %5d s  %6d MB more on disk' "$name" $((SECONDS - start)) $(($(du -smx "$base" | cut -f 1) - before)))")
}

# inside COMMAND...: in the root folder, with an environment of its own.
inside() {
  local environment=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "TRAINER_WITH_OPENCV=$opencv") name
  while read -r name; do environment+=("$name=${!name}"); done < <(compgen -e PIP_)
  env -i "${environment[@]}" chroot "$base" "$@"
}

# shellcheck disable=SC2016  # expanded inside
in_clone() { inside bash -c 'cd /root/trainer && exec "$@"' bash "$@"; }

make_base() {
  local mirror=
  if grep -qx VERSION_CODENAME=bookworm /etc/os-release; then
    # shellcheck disable=SC2016  # apt's own variable
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | awk '/^https?:/ && !found++')
  fi
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$base" ${mirror:+"$mirror"} >"$base.log" 2>&1 ||
    { tail -n 5 "$base.log" >&2; return 1; }
  rm -f "$base.log"
}

use_site_settings() {
  local item
  if grep -qx VERSION_CODENAME=bookworm /etc/os-release; then
    rm -rf "$base"/etc/apt/sources.list*
    for item in sources.list sources.list.d apt.conf.d keyrings; do
      if [ -e "/etc/apt/$item" ]; then cp -rL "/etc/apt/$item" "$base/etc/apt/"; fi
    done
  fi
  for item in /etc/pip.conf "${PIP_CERT:-}"; do
    if [ -n "$item" ] && [ -e "$item" ] && ! [ -e "$base$item" ]; then install -D -m 644 "$item" "$base$item"; fi
  done
  cp -L /etc/hosts /etc/resolv.conf "$base/etc/"
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$base/usr/local/share/ca-certificates/"
    inside update-ca-certificates >/dev/null 2>&1
  fi
}

step "bare Debian 12" make_base
use_site_settings
mount -t proc proc "$base/proc"
mount --rbind /sys "$base/sys"
mount --rbind /dev "$base/dev"
step "clone" git clone --quiet --no-hardlinks "$repository" "$base/root/trainer"
step "launch.sh" in_clone scripts/launch.sh --config configs/quickstart.yaml
step "test.sh" in_clone scripts/test.sh
printf '%s\n' "" "TRAINER_WITH_OPENCV=$opencv" "${report[@]}"
