#!/usr/bin/env bash
# Makes .venv: Python 3.11 or later, the pinned requirements, and Headgate itself, editable.
# Does nothing if that was done before for the same requirements, in the same place.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

stamp=.venv/.headgate-setup
# The path belongs to it: a virtual environment that was copied or moved still points to where it was made.
wanted=$({ pwd && cat requirements.txt requirements-dev.txt constraints.txt pyproject.toml scripts/setup.sh; } | cksum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && .venv/bin/python -c "" 2>/dev/null; then
  exit 0
fi

# Prefers an interpreter that can make a complete environment over one that first needs a package.
find_python() {
  local name needs
  for needs in "import ensurepip, venv" ""; do
    for name in python3 python3.13 python3.12 python3.11; do
      if "$name" -c "import sys; assert sys.version_info >= (3, 11); $needs" >/dev/null 2>&1; then
        echo "$name"
        return
      fi
    done
  done
}

make_venv() {
  local python package
  python=$(find_python)
  [ -n "$python" ] || fail "Python 3.11 or later is needed and was not found: install python3.11 or later"
  # Debian splits the standard library: without this package, environments are made without pip.
  if ! "$python" -c "import ensurepip, venv" 2>/dev/null; then
    package=$("$python" -c "import sys; print('python{}.{}-venv'.format(*sys.version_info))")
    may_install || fail "$python makes no virtual environments without the package $package: apt-get install $package"
    apt_install "$package"
  fi
  say "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
}

# Not one that was made elsewhere, that an interrupted run left without pip, or whose Python is gone or too old.
venv_is_sound() {
  grep -qsF " $PWD/.venv" .venv/pyvenv.cfg &&
    .venv/bin/python -c "import pip, sys; assert sys.version_info >= (3, 11)" 2>/dev/null
}

rm -f "$stamp"
venv_is_sound || make_venv

pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check --no-input "$@" </dev/null; }

say "installing the pinned requirements (a few minutes at most)"
pip install -r requirements-dev.txt -c constraints.txt || fail "pip could not install requirements-dev.txt; its message is above"
pip install --no-deps --no-build-isolation --editable . || fail "pip could not install Headgate; its message is above"
say "compiling the loops of labels, operators and deadlines (a minute)"
.venv/bin/python -c "from headgate.labels.column import warm; warm()" || fail "the reader of labels could not be compiled; the message is above"
.venv/bin/python -c "from headgate.execution.warm import warm; warm()" || fail "the operators could not be compiled; the message is above"
.venv/bin/python -c "from headgate.realtime.governor import warm; warm()" || fail "the governor of deadlines could not be compiled; the message is above"
echo "$wanted" >"$stamp"
say "ready"
