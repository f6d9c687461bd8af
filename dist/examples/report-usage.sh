#!/bin/sh
# Tells kamsd what an agent's turn really cost, so that Kams corrects its estimates.
#
#   report-usage.sh AGENT_PID INPUT_TOKENS [SERVER]
#
# INPUT_TOKENS: by how much the input of the turn grew, as the model provider counted it (the `usage` of the last
# answer minus that of the one before). Run it after each turn, as the user who runs the agent.
set -eu
if [ $# -lt 2 ]; then
    echo "usage: $0 AGENT_PID INPUT_TOKENS [SERVER]" >&2
    exit 2
fi
body=$(printf '{"agent_pid": %d, "input_tokens": %d' "$1" "$2")
if [ $# -ge 3 ]; then
    body="$body, \"server\": \"$3\""
fi
exec curl --silent --show-error --fail-with-body --max-time 10 \
    --unix-socket "${KAMS_SOCKET:-/run/kams/kams.sock}" \
    --header 'content-type: application/json' --data "$body}" http://kams/v1/usage
