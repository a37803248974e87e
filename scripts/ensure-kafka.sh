#!/usr/bin/env bash
# Makes sure that Kafka's jars are there, from Maven: Spark's connector, which streams and sinks of Kafka need, and with
# `broker` also a broker, which the tests start. They go below $HEADGATE_KAFKA, usually ~/.cache/headgate/kafka.
#   scripts/ensure-kafka.sh [connector | broker]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

# The connector should have Spark's own version. Maven's registry had no 4.3 when this was written: 4.2.0 is the newest
# that is there, and the tests run with it. Its own dependencies are named here one by one because the files of Spark
# that would name them also name a registry that not every machine reaches.
CONNECTOR="org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0
  org.apache.kafka:kafka-clients:3.9.2 org.apache.commons:commons-pool2:2.13.1"
BROKER="org.apache.kafka:kafka_2.13:4.1.0 org.slf4j:slf4j-nop:1.7.36"

home=${HEADGATE_KAFKA:-$HOME/.cache/headgate/kafka}

# dependency GROUP:ARTIFACT:VERSION [alone]: one dependency of the project below
dependency() {
  local group artifact version
  IFS=: read -r group artifact version <<<"$1"
  echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version>"
  [ -z "${2:-}" ] || echo "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
  echo "</dependency>"
}

# install NAME ARTIFACTS [alone]: into $home/NAME, once for the same artifacts. A folder is complete or not there.
install() {
  local name=$1 artifacts=$2 alone=${3:-} work artifact wanted
  wanted=$(echo "$artifacts" | tr -s '[:space:]' ' ')
  [ "$(cat "$home/$name/.headgate-setup" 2>/dev/null)" = "$wanted" ] && return 0
  command -v mvn >/dev/null || fail "Kafka's jars come with Maven, which was not found: apt-get install maven"
  say "fetching $wanted"
  mkdir -p "$home"
  work=$(mktemp -d "$home/.$name-XXXXXX")
  trap 'rm -rf "$work"' RETURN
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>headgate</groupId><artifactId>jars</artifactId><version>1</version><dependencies>'
    for artifact in $artifacts; do dependency "$artifact" "$alone"; done
    echo '</dependencies></project>'
  } >"$work/pom.xml"
  mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/jars" </dev/null >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log" >&2; fail "Maven could not fetch them; its last lines are above"; }
  echo "$wanted" >"$work/jars/.headgate-setup"
  rm -rf "${home:?}/$name"
  mv "$work/jars" "$home/$name"
}

case "${1:-connector}" in
connector) install connector "$CONNECTOR" alone ;;
broker)
  install connector "$CONNECTOR" alone
  install broker "$BROKER"
  ;;
*) fail "usage: scripts/ensure-kafka.sh [connector | broker]" ;;
esac
