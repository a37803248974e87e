#!/usr/bin/env bash
# Makes sure that the engines Headgate is compared with are there: bytewax and Apache Flink, each in an environment
# of its own under .peers, because their requirements and ours need not agree. Neither is needed to use Headgate.
# A peer that cannot be installed is said so and left out; the other one still is tried.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

# The last releases that were measured. Parquet is read and written by each engine's own means: bytewax leaves that to
# its user, hence pyarrow; Flink's format is a jar that needs Hadoop's classes, and Maven brings both.
BYTEWAX="bytewax==0.21.1 pyarrow==26.0.1"
FLINK="apache-flink==2.3.0"
FLINK_JARS="org.apache.flink:flink-sql-parquet:2.3.0
  org.apache.hadoop:hadoop-client-api:3.4.2 org.apache.hadoop:hadoop-client-runtime:3.4.2
  commons-logging:commons-logging:1.2"

# Flink's wheels are built for few versions of Python; the first of these that is there is taken.
find_python() {
  local name
  for name in .venv/bin/python python3.11 python3.12 python3; do
    if "$name" -c "import ensurepip, sys, venv; assert (3, 11) <= sys.version_info < (3, 13)" >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
}

# install NAME REQUIREMENT...: into .peers/NAME, once for the same requirements
install() {
  local name=$1 folder=.peers/$1
  shift
  if [ "$(cat "$folder/.headgate-setup" 2>/dev/null)" = "$PWD $*" ] && "$folder/bin/python" -c "" 2>/dev/null; then
    return 0
  fi
  say "installing $* into $folder"
  "$python" -m venv --clear "$folder" || return 1
  "$folder/bin/python" -m pip --quiet --disable-pip-version-check --no-input install "$@" </dev/null || return 1
  echo "$PWD $*" >"$folder/.headgate-setup"
}

# The jars go beside Flink's own, where they are found without being named.
flink_jars() {
  local lib artifact jar
  lib=$(.peers/flink/bin/python -c "import pathlib, pyflink; print(pathlib.Path(pyflink.__file__).parent / 'lib')")
  for artifact in $FLINK_JARS; do
    jar=$(echo "$artifact" | awk -F: '{ print $2 "-" $3 ".jar" }')
    [ -f "$lib/$jar" ] && continue
    command -v mvn >/dev/null || { say "Flink's Parquet format comes with Maven, which was not found: apt-get install maven"; return 1; }
    say "fetching $jar"
    mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$PWD/.peers/jars" </dev/null || return 1
    cp ".peers/jars/$jar" "$lib/" || return 1
  done
}

python=$(find_python)
[ -n "$python" ] || fail "Python 3.11 or 3.12 is needed for the peers and was not found"
mkdir -p .peers
missing=0
# shellcheck disable=SC2086
install bytewax $BYTEWAX || { say "bytewax could not be installed; the message is above"; missing=1; }
# shellcheck disable=SC2086
{ install flink $FLINK && flink_jars; } || { say "Flink could not be installed; the message is above"; missing=1; }
exit "$missing"
