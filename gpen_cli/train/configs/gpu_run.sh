#!/usr/bin/env bash
# Ten minutes with judges on a GPU machine that has torch, OpenCV and scipy, and no network.
#
#   gpen_cli/train/configs/gpu_run.sh prepare FACES FACE_NET   here: packs crops, the face net and two wheels into build/gpu_train
#   gpen_cli/train/configs/gpu_run.sh                          there: trains for MINUTES (9), from START and its judges, JUDGES
#   gpen_cli/train/configs/gpu_run.sh join FOLDER FILE         here: the weights again, out of the pieces that came back
#
# CONFIG, START and JUDGES are those of the 512 px net in milestones/. For the 256 px net:
#   prepare with SIZE=256, then run with CONFIG=gpen-open-256-adversarial START=pretrained_models/gpen-open-256.safetensors JUDGES=
# Results go to $OUT (default: gpu_results): weights in pieces under 16 MiB, the judges, the log, the last sheet. Stopped early
# (Ctrl-C, SIGTERM), it saves first. The checkpoint with its optimisers is too large to travel; a second run starts from the weights.
set -euo pipefail
cd "$(dirname "$0")/../../.."
PACK=build/gpu_train
RUN=${RUN:-/tmp/gpen_gpu_run}
CONFIG=${CONFIG:-gpen-open-512-adversarial}
START=${START:-milestones/gpen-open-512.safetensors}
JUDGES=${JUDGES-milestones/gpen-open-512.judges.safetensors}
MOST=$((64 * 1024 * 1024)) # bytes that travel: all that git does not ignore, and the pack

if [ "${1:-}" = prepare ]; then
    PYTHON=${PYTHON:-.venv/bin/python}
    rm -rf "$PACK"
    mkdir -p "$PACK/wheels" "$PACK/val"
    "$PYTHON" -m gpen_cli.train.pack "$2" "$PACK/faces" --size "${SIZE:-512}" --format webp --quality "${QUALITY:-66}"
    ls "$2/val/512" | head -16 | while read -r name; do cp "$2/val/512/$name" "$PACK/val/"; done # for the sheet
    cp "$3" "$PACK/face_net.safetensors"
    "$PYTHON" -m pip download --quiet --no-deps --dest "$PACK/wheels" platformdirs
    "$PYTHON" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$PACK/wheels" basicsr==1.4.2
    bytes=$({ git ls-files -z --cached --others --exclude-standard && find "$PACK" -type f -print0; } | xargs -0 cat | wc -c)
    echo "$((bytes / 1024 / 1024)) MiB would travel"
    [ "$bytes" -le "$MOST" ] || { echo "error: that is over 64 MiB; lower QUALITY or SIZE" >&2 && exit 6; }
    exit
fi
if [ "${1:-}" = join ]; then
    cat "$2"/weights.part_* >"$3"
    exit
fi

OUT=${OUT:-gpu_results}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT" "$RUN"
SITE=$(mktemp -d)
"$PYTHON" -m pip install --quiet --no-index --no-deps --target "$SITE" "$PACK"/wheels/*.whl
export PYTHONPATH=$PWD:$SITE
"$PYTHON" -c 'import torch; print(torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")'

keep() {
    [ -f "$RUN/$CONFIG.safetensors" ] || return 0
    split --bytes=15M --numeric-suffixes "$RUN/$CONFIG.safetensors" "$OUT/weights.part_"
    cp "$RUN/$CONFIG.judges.safetensors" "$RUN/log.jsonl" "$OUT/"
    newest=$(ls -t "$RUN"/sheets/*.png 2>/dev/null | head -1)
    [ -z "$newest" ] || cp "$newest" "$OUT/"
}
trap keep EXIT
# timeout sends SIGINT: the step is finished and everything saved before the kill 30 s later.
timeout --signal=INT --kill-after=30 $((60 * ${MINUTES:-9})) "$PYTHON" -m gpen_cli train \
    --config "$CONFIG" --data "$PACK/faces/train" --face-net "$PACK/face_net.safetensors" \
    --start "$START" ${JUDGES:+--start-judges "$JUDGES"} --validation "$PACK/val" \
    --batch-size "${BATCH:-32}" --steps "${STEPS:-3000}" --rate "${RATE:-1e-3}" --workers "${WORKERS:-14}" \
    --validate-every 500 --checkpoint-minutes 1.5 --output "$RUN" "${@}" || [ $? -eq 124 ] || [ $? -eq 130 ]
