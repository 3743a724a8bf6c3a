#!/usr/bin/env bash
# Makes sure that a Docker daemon answers: finds one, or installs Debian's and starts it.
# Prints nothing when one answers already. Ends with an error that says what to do where
# it can do neither.
set -euo pipefail

data=/var/lib/spadework-docker
log=/var/log/spadework-docker.log
socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
start_timeout_s=60

# The daemon is asked itself: a client may be there without a daemon, or be something else.
answers() {
  [[ $socket == unix://* ]] || return 0
  python3 - "${socket#unix://}" <<'PYTHON' 2>/dev/null
import socket, sys
with socket.socket(socket.AF_UNIX) as daemon:
    daemon.settimeout(5)
    daemon.connect(sys.argv[1])
    daemon.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
    sys.exit(b" 200 " not in daemon.recv(4096))
PYTHON
}

if answers; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "No Docker daemon answers at $socket, and only root can start one: start it, and let this user in (group docker)." >&2
  exit 1
fi
if ! command -v dockerd >/dev/null; then
  if ! command -v apt-get >/dev/null; then
    echo "No dockerd here, and no apt-get to install it with: install Docker, and start it." >&2
    exit 1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io >/dev/null
fi
if [ "$socket" != unix:///var/run/docker.sock ]; then
  echo "No Docker daemon answers at $socket, which DOCKER_HOST names: start it, or unset DOCKER_HOST." >&2
  exit 1
fi
# No bridge and no firewall rules: none of our containers has a network.
# In a session of its own, so that what ends the caller does not end it.
setsid dockerd --bridge=none --iptables=false --ip-masq=false --ip-forward=false \
  --data-root "$data" >>"$log" 2>&1 </dev/null &
daemon=$!
for _ in $(seq "$start_timeout_s"); do
  if answers; then
    echo "Started a Docker daemon (log $log); it stays until you end it: kill $daemon"
    exit 0
  fi
  kill -0 "$daemon" 2>/dev/null || break
  sleep 1
done
echo "The Docker daemon did not come up; the end of its log, $log:" >&2
tail -n 15 "$log" >&2
exit 1
