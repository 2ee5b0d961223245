#!/bin/sh
# debian_snapshot.sh [TIME [FOLDER]]: has apt install Debian's packages as they were at TIME (20260101T000000Z);
# without TIME as they are now. FOLDER is apt's configuration.
set -eu
time=${1:-} folder=${2:-/etc/apt}
[ -n "$time" ] || exit 0
. /etc/os-release
rm -rf "$folder/sources.list.d"
# A list of that time counts as out of date, and its signature still as Debian's.
line="deb [check-valid-until=no] http://snapshot.debian.org/archive"
cat > "$folder/sources.list" <<LIST
$line/debian/$time $VERSION_CODENAME main
$line/debian/$time $VERSION_CODENAME-updates main
$line/debian-security/$time $VERSION_CODENAME-security main
LIST
