#!/usr/bin/env bash
# Brings Kafka's broker and its performance tools, which no Debian package has, for `crosslane bench apps --only kafka,kafka-one`.
#
#   scripts/fetch-kafka.sh [FOLDER]      # default: target/kafka
#
# Needs Maven (Debian: apt-get install maven), which fetches 55 MB of published artifacts. Prints what to set: KAFKA_HOME.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-${CARGO_TARGET_DIR:-target}/kafka}
version=3.7.1
if ! command -v mvn >/dev/null; then
    echo "kafka: Maven is not installed: apt-get install maven" >&2
    exit 1
fi
mkdir -p "$folder/libs"
folder=$(cd "$folder" && pwd)
cat >"$folder/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>crosslane</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$version</version></dependency>
  </dependencies>
</project>
POM
mvn --quiet --batch-mode --file "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$folder/libs"
echo "export KAFKA_HOME=$folder"
