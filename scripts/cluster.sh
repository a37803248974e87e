#!/usr/bin/env bash
# A standalone cluster of Spark on this machine, for tests and for trying things out: a master and three workers of one
# core each, all on loopback. If root starts it, the workers run as `nobody`, who cannot read the home of the driver.
#   scripts/cluster.sh start FOLDER    prints the master's address when all workers have joined
#   scripts/cluster.sh stop FOLDER
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$here/scripts/common.sh"

WORKERS=${HEADGATE_WORKERS:-3}
MEMORY=${HEADGATE_WORKER_MEMORY:-1g}
PYTHON=${PYTHON:-$here/.venv/bin/python}

usage() { fail "usage: scripts/cluster.sh start FOLDER | stop FOLDER"; }
[ $# = 2 ] || usage
mkdir -p "$2"
folder=$(cd "$2" && pwd)

free_port() { "$PYTHON" -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"; }

# as_worker COMMAND...: as nobody if we are root
as_worker() {
  if [ "$(id -u)" = 0 ]; then
    setpriv --reuid=nobody --regid="$(id -gn nobody)" --clear-groups "$@"
  else
    "$@"
  fi
}

# spawn NAME COMMAND...: in a session of its own; its process id is kept for `stop`
spawn() {
  local name=$1
  shift
  setsid "$@" >"$folder/$name.log" 2>&1 </dev/null &
  echo $! >"$folder/$name.pid"
}

joined() {
  "$PYTHON" - "$1" <<'END'
import json, sys, urllib.request
with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/json/", timeout=5) as answer:
    print(json.load(answer)["aliveworkers"])
END
}

start() {
  local port ui number spark tries java path
  [ -z "$(ls "$folder"/*.pid 2>/dev/null)" ] || fail "there is a cluster in $folder already: stop it first"
  [ -x "$PYTHON" ] || fail "there is no $PYTHON: run make setup, or name another with PYTHON=..."
  spark=$("$PYTHON" -c "import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)")
  as_worker test -r "$spark/bin/spark-class" || fail "the workers' user cannot read $spark: install it elsewhere"
  export SPARK_HOME=$spark SPARK_LOCAL_IP=127.0.0.1 SPARK_DAEMON_MEMORY=256m
  # Not the starter's own folders: another user may not enter them
  java=$(readlink -f "${JAVA_HOME:+$JAVA_HOME/bin/java}" || readlink -f "$(command -v java)")
  path=$(dirname "$java"):/usr/local/bin:/usr/bin:/bin
  port=$(free_port) ui=$(free_port)
  spawn master "$spark/bin/spark-class" org.apache.spark.deploy.master.Master \
    --host 127.0.0.1 --port "$port" --webui-port "$ui"
  for number in $(seq "$WORKERS"); do
    mkdir -p "$folder/worker-$number"
    [ "$(id -u)" != 0 ] || chown nobody "$folder/worker-$number"
    # A session first, then another user: the shell that stays is the one whose id is kept
    spawn "worker-$number" bash -c "$(declare -f as_worker); as_worker \"\$@\"" worker \
      env PATH="$path" HOME="$folder/worker-$number" SPARK_LOCAL_DIRS="$folder/worker-$number" "$spark/bin/spark-class" \
      org.apache.spark.deploy.worker.Worker "spark://127.0.0.1:$port" --host 127.0.0.1 --webui-port 0 \
      --cores 1 --memory "$MEMORY" --work-dir "$folder/worker-$number"
  done
  for tries in $(seq 120); do
    if [ "$(joined "$ui" 2>/dev/null)" = "$WORKERS" ]; then
      echo "spark://127.0.0.1:$port" | tee "$folder/master"
      return
    fi
    sleep 0.5
  done
  stop
  fail "the cluster did not start within a minute; its logs are in $folder"
}

# Ends what `start` began, by process group: a worker's executors belong to its group.
stop() {
  local file pid
  for file in "$folder"/*.pid; do
    [ -f "$file" ] || continue
    pid=$(cat "$file")
    kill -TERM -- "-$pid" 2>/dev/null || true
    for _ in $(seq 100); do
      kill -0 -- "-$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    rm -f "$file"
  done
  rm -f "$folder/master"
}

case "$1" in
start) start ;;
stop) stop ;;
*) usage ;;
esac
