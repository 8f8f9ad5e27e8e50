#!/usr/bin/env bash
# Parity and speed on a GPU machine that has torch, OpenCV and no network, in under six minutes.
#
#   benchmarks/gpu_check.sh prepare   here, with network: fetches the few small wheels it needs into build/gpu_wheels (ignored by git)
#   benchmarks/gpu_check.sh           there: installs those beside the machine's own packages, runs the gpu tests and the benchmark
#   benchmarks/gpu_check.sh onnx      there, if it has onnx and onnxruntime-gpu (and TensorRT): latency of the exports through them
#
# Results go to $OUT (default: gpu_results).
set -euo pipefail
cd "$(dirname "$0")/.."
WHEELS=build/gpu_wheels
NEEDED="safetensors platformdirs filelock typer rich pytest pillow scikit-image"

if [ "${1:-}" = prepare ]; then
    mkdir -p "$WHEELS"
    "${PYTHON:-.venv/bin/python}" -m pip download --quiet --dest "$WHEELS" --only-binary :all: --python-version 3.12 \
        --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform any $NEEDED
    rm -f "$WHEELS"/numpy-*.whl # the machine has its own
    du -sh "$WHEELS"
    exit
fi

OUT=${OUT:-gpu_results}
mkdir -p "$OUT"
SITE=$(mktemp -d)
trap 'rm -rf "$SITE"' EXIT
PYTHON=${PYTHON:-python3}
for wheel in "$WHEELS"/*.whl; do
    "$PYTHON" -m pip install --quiet --no-index --no-deps --target "$SITE" --upgrade "$wheel" 2>/dev/null || echo "left out: $wheel"
done
export PYTHONPATH=$PWD:$PWD/benchmarks:$PWD/tests:$SITE
if [ "${1:-}" = onnx ]; then
    if ! "$PYTHON" -c 'import onnx, onnxscript, onnxruntime as o, sys; sys.exit("CUDAExecutionProvider" not in o.get_available_providers())'; then
        echo "The CUDA part needs onnx, onnxscript and onnxruntime-gpu, and one is not here; nothing was measured." >&2
        exit 5
    fi
    timeout 330 "$PYTHON" benchmarks/generator.py --size 256 --batch 1 4 8 --json "$OUT/gpu_onnx.json" 2>&1 | tee "$OUT/gpu_onnx.txt"
    exit
fi
"$PYTHON" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())'
timeout 60 "$PYTHON" -m pytest -q -m gpu tests/test_cuda_graph.py 2>&1 | tee "$OUT/gpu_tests.txt" || true
timeout 290 "$PYTHON" benchmarks/gpu_check.py --budget 250 --json "$OUT/gpu_check.json" 2>&1 | tee "$OUT/gpu_check.txt"
