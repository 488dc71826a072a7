#!/usr/bin/env bash
# Installs the Debian packages in apt-packages.txt that are missing. Needs root only when one is.
set -euo pipefail
cd "$(dirname "$0")"
missing=()
while read -r package; do
  [[ -z $package || $package == \#* ]] && continue
  dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done < apt-packages.txt
[[ ${#missing[@]} -eq 0 ]] && exit 0
if [[ $(id -u) -ne 0 ]]; then
  echo "These Debian packages are missing: ${missing[*]}" >&2
  echo "Install them (sudo apt-get install --no-install-recommends ${missing[*]}), or run: make unit" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends "${missing[@]}" >/dev/null
