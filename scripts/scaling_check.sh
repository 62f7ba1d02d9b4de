#!/usr/bin/env bash
# Checks and times training on 1, 2, 4, ... N GPUs of this machine, and writes one table.
# Usage: scripts/scaling_check.sh N [--quick] [--part bits|times|sharded] [--results FILE]
#   --quick     small models and few steps: whether everything runs
#   --part      a part of the sections alone
#   --results   the table; build/scaling/table.md by default
#   CUDA_ARCHITECTURES names what is built ("90").
# First the same bits are asked of every number of GPUs (benchmarks/scaling_bits.py); then a GPT of
# 85 million and one of 1.5 billion weights are timed beside digital torch (benchmarks/gpt.py):
# with one global batch (strong), and with one for each GPU (weak). The last sections shard the
# weights over the GPUs: whether the bits of the GPT stay, and its time and memory.
set -euo pipefail
cd "$(dirname "$0")/.."

most=${1:-}
case $most in 1 | 2 | 4 | 8) shift ;; *) echo "usage: $0 1|2|4|8 [--quick] [--part bits|times|sharded] [--results FILE]" >&2; exit 2 ;; esac
quick=0
part=all
results=build/scaling/table.md
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 ;;
    --results) results=$2; shift ;;
    --part) case ${2:-} in bits | times | sharded) part=$2; shift ;; *) echo "--part bits, times or sharded" >&2; exit 2 ;; esac ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
build=build/scaling
mkdir -p $build "$(dirname "$results")"
ranks=()
for size in 1 2 4 8; do [ "$size" -le "$most" ] && ranks+=("$size"); done
python=${PYTHON:-python3}
found=$("$python" -c 'import torch; print(torch.cuda.device_count())')
if [ "$found" -lt "$most" ]; then
  echo "$most GPUs are asked for, and torch sees $found; run $0 with at most that many" >&2
  exit 2
fi

cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DPULSORA_CUDA=ON -DPULSORA_CPU_ISAS="V2;V3" \
  -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-90}" -DPython_EXECUTABLE="$(command -v "$python")" >$build/log
cmake --build $build -j "$(nproc)" --target _core >>$build/log
export PYTHONPATH=$build/python

failed=0
section() { # section PART TITLE COMMAND...: the table that a benchmark prints, under a title
  if [ "$part" != all ] && [ "$part" != "$1" ]; then return; fi
  printf '\n## %s\n\n`%s`\n\n' "$2" "${*:3}" >>"$results"
  "$python" "${@:3}" 2>>$build/log >>"$results" || { echo "FAIL: $2 (see $build/log)"; failed=1; }
}

date "+# Training on up to $most GPUs, %Y-%m-%d" >"$results"
printf '\n%s\n' "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c)" >>"$results"
million85=(--rows 64)
billion=(--layers 48 --width 1600 --rows 16)
steps=5
if [ $quick = 1 ]; then
  million85=(--layers 2 --rows 16)
  billion=(--layers 2 --width 1600 --rows 16)
  steps=2
fi
common=(--ranks "${ranks[@]}" --loops recorded --steps $steps)
bits=(--steps 50)
[ $quick = 1 ] && bits=(--steps 10)
section bits "Bits" benchmarks/scaling_bits.py --device cuda --ranks "${ranks[@]}" "${bits[@]}"
section times "85 million weights, one global batch" benchmarks/gpt.py "${common[@]}" "${million85[@]}"
section times "85 million weights, 16 x 256 tokens a GPU" benchmarks/gpt.py "${common[@]}" "${million85[@]}" --rows 16 --weak
section times "1.5 billion weights, one global batch" benchmarks/gpt.py "${common[@]}" "${billion[@]}" \
  --only "digital float32" LRTT
section times "1.5 billion weights, 4 x 256 tokens a GPU" benchmarks/gpt.py "${common[@]}" "${billion[@]}" --rows 4 --weak \
  --only "digital float32" LRTT
sharded=(--ranks "${ranks[@]}" --loops plain --steps $steps --weights all sharded --updates auto)
section sharded "Weights sharded, 85 million, the same bits" benchmarks/gpt.py "${sharded[@]}" "${million85[@]}" --frozen \
  --only SoftBounds LRTT
section sharded "Weights sharded, 1.5 billion weights, 4 x 256 tokens a GPU" benchmarks/gpt.py "${sharded[@]}" \
  "${billion[@]}" --rows 4 --weak --only LRTT
if [ "$most" -ge 4 ]; then
  billions=(--layers 32 --width 4096)
  [ $quick = 1 ] && billions=(--layers 2 --width 4096)
  sizes=(4) && [ "$most" = 8 ] && sizes=(4 8)
  section sharded "Weights sharded, 6.4 billion weights, 8 x 256 tokens in all" benchmarks/gpt.py --ranks "${sizes[@]}" \
    --loops plain --steps $steps --weights sharded "${billions[@]}" --rows 8 --only LRTT
fi
cat "$results"
exit $failed
