#!/usr/bin/env bash
# A prefill engine, a decode engine and the router in front of them, on this host, until it is stopped.
#
#   serve.sh MODEL [option of vLLM ...]
#
# Runs under the `python3` of the environment that has vLLM and kvferry. The router answers on port 8000; PORT, PREFILL_PORT
# and DECODE_PORT choose others, CONNECTOR another connector than kvferry's, as the JSON that vLLM takes without the role.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
model=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefill=${PREFILL_PORT:-8100} decode=${DECODE_PORT:-8200} port=${PORT:-8000}
connector=${CONNECTOR:-'{"kv_connector": "KvferryConnector", "kv_connector_module_path": "kvferry.vllm"}'}

# with_role ROLE: the connector's JSON with this role.
with_role() { echo "${connector%\}*}, \"kv_role\": \"$1\"}"; }

# engine PORT ROLE [option ...]: the module instead of `vllm serve`, which the package for CPUs does not have. To be started in
# the background, where it takes the place of its shell, so that what is stopped later is the engine.
engine() {
    local port=$1 role=$2
    shift 2
    exec python3 -m vllm.entrypoints.openai.api_server --model "$model" --host 127.0.0.1 --port "$port" \
        --kv-transfer-config "$(with_role "$role")" "$@"
}

# wait_for PORT PROCESS: until the engine answers, or has ended.
wait_for() {
    local waited status
    for ((waited = 0; waited < ${START_SECONDS:-900}; waited += 2)); do
        if ! kill -0 "$2" 2>/dev/null; then
            wait "$2" && status=0 || status=$?
            echo "the engine on port $1 has ended with $status" >&2
            return 1
        fi
        python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=2)' \
            "http://127.0.0.1:$1/health" 2>/dev/null && return
        sleep 2
    done
    echo "the engine on port $1 does not answer" >&2
    return 1
}

trap 'trap - EXIT; kill $(jobs -p) 2>/dev/null || true; wait' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

engine "$prefill" kv_producer "$@" &
first=$!
# NIXL's connector, for a comparison, needs a port of its own for each engine; kvferry's address travels with the request.
VLLM_NIXL_SIDE_CHANNEL_PORT=${DECODE_SIDE_PORT:-5601} engine "$decode" kv_consumer "$@" &
second=$!
wait_for "$prefill" "$first"
wait_for "$decode" "$second"
python3 "$here/proxy.py" --prefill "http://127.0.0.1:$prefill" --decode "http://127.0.0.1:$decode" --port "$port" &
router=$!
echo "the prefill engine, the decode engine and the router are up"
# A dead engine does not end it: the router says what it meets.
wait "$router"
