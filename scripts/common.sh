# shellcheck shell=bash
# Sourced by the other scripts: what they say, and how they install what the machine lacks.

say() { echo "headgate: $*"; }

fail() {
  echo "headgate: $*" >&2
  exit 1
}

# Whether we may install system packages without asking anybody for a password.
may_install() {
  command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# The package lists of a fresh machine are empty or old, hence the update; if it fails, the install may still succeed.
apt_install() {
  local log
  log=$(mktemp)
  say "installing $* with apt-get"
  as_root apt-get -q update >"$log" 2>&1 </dev/null || true
  if ! as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install $*; its last lines are above"
  fi
  rm -f "$log"
}
