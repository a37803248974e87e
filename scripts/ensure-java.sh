#!/usr/bin/env bash
# Makes sure that there is a Java runtime, version 17 or later: Spark runs on it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

have_java() {
  local java="${JAVA_HOME:+$JAVA_HOME/bin/}java" version
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || return 1
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

have_java && exit 0
may_install || fail "a Java runtime, version 17 or later, is needed and was not found: apt-get install openjdk-17-jre-headless"
apt_install openjdk-17-jre-headless
have_java || fail "openjdk-17-jre-headless is installed, but java is not in PATH or older than 17"
