#!/usr/bin/env bash
# Runs simple commands at once, each an argument. What the first one says is shown as it says it; what
# another one says, when it has ended. Ends with an error if one of them does, when all have ended.
set -uo pipefail
logs=$(mktemp -d)
declare -A running
# Bash has what it starts in the background ignore Ctrl-C.
trap 'kill "${!running[@]}" 2>/dev/null; rm -rf "$logs"; exit 130' INT TERM
trap 'rm -rf "$logs"' EXIT

number=0
for command in "$@"; do
  if [ "$number" -eq 0 ]; then
    bash -c "exec $command" &
  else
    bash -c "exec $command" >"$logs/$number" 2>&1 &
  fi
  running[$!]=$number
  number=$((number + 1))
done

failed=()
while [ "${#running[@]}" -gt 0 ]; do
  status=0
  wait -n -p ended "${!running[@]}" || status=$?
  number=${running[$ended]}
  unset "running[$ended]"
  command=${*:number + 1:1}
  if [ "$number" -gt 0 ]; then
    printf '\n==== %s\n' "$command"
    cat "$logs/$number"
  fi
  if [ "$status" -ne 0 ]; then
    failed+=("$command (status $status)")
    printf '\n==== FAILED, status %s: %s\n' "$status" "$command"
  fi
done
if [ "${#failed[@]}" -gt 0 ]; then
  printf '==== FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
