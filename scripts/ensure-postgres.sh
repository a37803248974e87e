#!/usr/bin/env bash
# Makes sure that the PostgreSQL server binaries are there: the tests start a throw-away server of their own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

# The same places, in the same order, as in src/headgate/testing/postgres.py.
have_postgres() {
  local initdb
  for initdb in "$(command -v initdb)" /usr/lib/postgresql/*/bin/initdb; do
    if [ -x "$initdb" ] && [ -x "$(dirname "$(readlink -f "$initdb")")/postgres" ]; then return 0; fi
  done
  return 1
}

have_postgres && exit 0
may_install || fail "PostgreSQL's server is needed and was not found: apt-get install postgresql"

# Debian would create and start a server for the whole machine, which nobody here asked for.
no_cluster=/etc/postgresql-common/createcluster.d/headgate-setup.conf
trap 'as_root rm -f "$no_cluster"' EXIT
as_root mkdir -p "$(dirname "$no_cluster")"
echo "create_main_cluster = false" | as_root tee "$no_cluster" >/dev/null
apt_install postgresql
have_postgres || fail "the package postgresql is installed, but there is no initdb in PATH or /usr/lib/postgresql/*/bin"
