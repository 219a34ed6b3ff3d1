# What the two commands share: packages, one configured build folder, building without noise. It lies beside the
# examples since they are what most people run, and the tests build them anyway. Sourced by POSIX sh scripts that have
# set $root to the repository. Whatever it prints goes to stderr: stdout belongs to the program that is run.
#
# MEZZO_BUILD  the build folder, default build/ in the repository
# MEZZO_SETUP  options for meson setup, read once, when the folder is new
# MEZZO_PACKAGES  packages to install beside those that everyone needs
# MEZZO_TARGETS  what tests/run.sh builds, all if it names nothing

build=${MEZZO_BUILD:-$root/build}

# Debian 12, Ubuntu 22.04 and 24.04 have the same names, but that the default compiler of 22.04 is too old.
case $(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") in
  'ubuntu 22.04') compiler=g++-12 ;;
  *) compiler=g++ ;;
esac
packages="$compiler meson ninja-build pkg-config libeigen3-dev libdnnl-dev libpng-dev libcli11-dev nlohmann-json3-dev
  doctest-dev libbenchmark-dev ${MEZZO_PACKAGES:-}"

say() { printf '%s\n' "$*" >&2; }

# quietly COMMAND...: on a terminal shows the output as it comes, elsewhere only that of a command that failed.
quietly() {
  if [ -t 2 ]; then
    "$@" >&2
    return
  fi
  log=$(mktemp)
  status=0
  "$@" >"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}

install_packages() {
  command -v dpkg-query >/dev/null || return 0  # not Debian: meson will name what it misses
  installed=$(dpkg-query -W -f '=${Package}=${db:Status-Status}=' $packages 2>/dev/null || :)
  missing=
  for package in $packages; do
    case $installed in
      *"=$package=installed="*) ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0

  install="apt-get install -y --no-install-recommends$missing"
  if [ "$(id -u)" = 0 ]; then
    as_root='env DEBIAN_FRONTEND=noninteractive'
  elif command -v sudo >/dev/null; then
    as_root='sudo env DEBIAN_FRONTEND=noninteractive'
  else
    say "Packages are missing and this user may not install them. As root:" "apt-get update && $install"
    exit 1
  fi
  say "Installing$missing"
  quietly $as_root apt-get update && quietly $as_root $install || {
    say "That failed. To be done as root: apt-get update && $install"
    exit 1
  }
}

# From a bare machine or an earlier run to a configured build folder.
configure() {
  install_packages
  if [ ! -f "$build/build.ninja" ]; then
    say "Configuring and building $build: minutes now, seconds from then on"
    CXX=${CXX:-$compiler} quietly meson setup "$build" "$root" ${MEZZO_SETUP:-}
  fi
}

# build_targets [TARGET...]: all of them if none is named.
build_targets() { quietly ninja -C "$build" "$@"; }
