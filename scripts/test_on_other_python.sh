#!/usr/bin/env bash
# The server's suite on another interpreter: nothing here needs torch.
# Arguments: the interpreter, then what pytest is to be told beyond the folders.
set -euo pipefail
python=$1
shift
cd "$(dirname "$0")/.."
venv=.venv-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ ! -e "$venv/.ready" ] || [ pyproject.toml -nt "$venv/.ready" ]; then
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --upgrade pip
  "$venv/bin/python" -m pip install --quiet -e '.[docker]' pytest pytest-asyncio pytest-timeout hypothesis trustme
  touch "$venv/.ready"
fi
"$venv/bin/python" -m pytest tests/server tests/api "$@"
