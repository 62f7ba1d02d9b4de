#!/usr/bin/env bash
# Builds for the GPU of this machine, and runs every test that needs a GPU, the checkers of
# compute-sanitizer and the benchmarks, one of these parts after another.
# Usage: scripts/gpu_check.sh [--only PARTS] [--results DIR]
#   --only      the parts to run, separated by commas, of tests, memcheck, initcheck, racecheck and
#               benchmarks; all by default
#   --results   where the logs, summary.txt and benchmark.json go; build/gpu-check by default
# CHECK_SECONDS limits each checker and pytest (400), CUDA_ARCHITECTURES names what is built ("80;90").
set -uo pipefail
cd "$(dirname "$0")/.."

parts=tests,memcheck,initcheck,racecheck,benchmarks
results=build/gpu-check
while [ $# -gt 0 ]; do
  case $1 in
    --only) parts=$2; shift ;;
    --results) results=$2; shift ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$results"
: >"$results/summary.txt"
build=build/gpu-check
python=${PYTHON:-python3}
failed=0
gpus=$(nvidia-smi --list-gpus | wc -l)

# Runs a command with its output in a log, and says in one line how it went.
run() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$results/$name.log" 2>&1; then
    echo "ok    $name ($((SECONDS - start)) s)" | tee -a "$results/summary.txt"
  else
    echo "FAIL  $name ($((SECONDS - start)) s)" | tee -a "$results/summary.txt"
    tail -n 40 "$results/$name.log"
    failed=1
    return 1
  fi
}

run configure cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DPULSORA_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-80;90}" -DPULSORA_CPU_ISAS="V2;V3" \
  -DPULSORA_TEST_SOURCES="cuda/*.cpp" \
  -DPULSORA_EXTRA_COMPOUNDS="ParallelPairParams=$PWD/examples/08_custom_compound/parallel_pair.h;ResidualLearningParams=$PWD/examples/08_custom_compound/residual_learning.h" \
  -DPython_EXECUTABLE="$(command -v "$python")" || exit 1
run build cmake --build $build -j "$(nproc)" || exit 1

# All tests but large ones, out-of-memory tests and CUDA calls that are refused (a graph that cannot
# be updated is made anew). Racecheck, the slowest checker, runs a selection.
all='-CudaMath.*:CudaMemory.*:CudaTileGrid.*EveryShape:CudaUpdate.Property36_EveryModel*:CudaUpdate.Property36_LargeArrays:CudaStream.AStepGraphRefuses*:CudaStream.*AStepGraphAtAnAge*:*CudaRepeatedReads*setting1:*CudaRepeatedReads*setting3'
repeats='*CudaRepeatedReads.*shapes0setting0:*CudaRepeatedReads.*shapes2setting2:*CudaRepeatedReadsTogether.*shapes1setting4'
some='CudaProduct.*:CudaUpdate.Property36_Words*:CudaUpdate.Property37_*:CudaStream.*:CudaTile.*States*:CudaTile.*Inputs*:*CudaTileOfKind*/single:CudaTile.*Repeated*:CudaTile.*ManyShortReads*'
some+='-CudaStream.AStepGraphRefuses*:CudaStream.*LargeTile*'
check() { # check NAME TOOL TESTS [SHARDS]: the tests in so many processes; on the last GPU
  local shard
  for ((shard = 0; shard < ${4:-1}; shard++)); do
    run "$1-$shard" env CUDA_VISIBLE_DEVICES=$((gpus - 1)) OMP_NUM_THREADS=2 GTEST_TOTAL_SHARDS="${4:-1}" GTEST_SHARD_INDEX=$shard \
      timeout "${CHECK_SECONDS:-400}" compute-sanitizer --tool "$2" --error-exitcode 1 $build/rpucuda_tests --gtest_brief=1 \
      --gtest_filter="$3" & checks+=($!)
  done
}
# Tests of these names, which have cases for a GPU. pytest-benchmark, where a machine has it,
# refuses to run in several processes.
named=(accumulation_conv captured_graph adapter_gradients adc_gains adapter_span asymmetric batch_noise batch_step bench capture computed_cells
  conversion_outputs 'cuda*'
  evaluation 'forecast_*' gated_adapter gpu_source hardware_aware held_rows hugging_face hybrid_runs in_backward infinite_gradients inference 'inference_*on_gpus' 'loops_*' 'lowrank*' merge
  'peft*' programming pulse_writing readapt recorded_constants recorded_draws recorded_gates reseed retention scratch single_span solved_wires step_graph steps tile_grid torch_memory training_step_amp training_step_kinds torch_conv torch_cuda torch_recurrent training_step
  automatic_transfers hardware_counts integer_inference integer_reads integer_reads_on_gpus leaks mixed_precision noise_source transfer vector_cells verify_read weight_penalties weight_scaling write_verify)
python_tests() {
  local files=() name
  for name in "${named[@]}"; do files+=(tests/python/test_$name.py); done # $name may hold a *
  local workers=$(($(nproc) / 2))
  pytest_of python -n $((workers < 8 ? 8 : workers)) --dist loadfile "${files[@]}" \
    tests/python/test_custom_compound.py::test_a_compound_from_outside_the_tree_is_one_like_any_other \
    tests/python/test_models.py::test_networks_train_on_a_gpu
}
# Several processes, which start slowly beside other work: they begin first.
process_tests() {
  pytest_of processes -n 2 tests/python/test_distributed.py::test_processes_on_gpus_have_the_bits_of_one \
    tests/python/test_sharded_weights.py::test_sharded_weights_on_gpus_have_the_bits_of_one
}
pytest_of() { # pytest_of NAME ARGUMENTS...
  local name=$1
  shift
  run "$name" timeout "${CHECK_SECONDS:-400}" env PYTHONPATH=$build/python OMP_NUM_THREADS=2 \
    PULSORA_EXAMPLES_BUILD=$build "$python" -m pytest -q -p no:benchmark "$@"
}

asked() { [[ ",$parts," == *",$1,"* ]]; }
checks=()
await() { # waits for what runs side by side
  local each
  for each in "${checks[@]}"; do wait "$each" || failed=1; done
  checks=()
}

if asked tests; then
  process_tests & checks+=($!)
  python_tests & checks+=($!)
  run tests timeout "${CHECK_SECONDS:-400}" $build/rpucuda_tests --gtest_filter='-CudaMemory.*'
  # A user's program against the installed library, configured without a CUDA compiler.
  run install cmake --install $build --prefix $build/installed &&
    run program-configure cmake -S examples/cpp/05_gpu -B $build/on_gpu -DCMAKE_PREFIX_PATH="$PWD/$build/installed" &&
    run program-build cmake --build $build/on_gpu &&
    run program $build/on_gpu/on_gpu
  await
  run memory $build/rpucuda_tests --gtest_filter='CudaMemory.*' # counts the memory of the card: alone
fi
# A checker takes half as long in eight processes as in three; two checkers at once take longer.
asked memcheck && check memcheck memcheck "$all" 8
await
# initcheck misses writes of cuBLAS by the copy engine, which these gradients read.
asked initcheck && check initcheck initcheck "$all:CudaLowRankOf*Property46*" 8
await
if asked racecheck; then
  check racecheck racecheck "$some" 2
  check racecheck-lines racecheck 'CudaLineVisits.*:CudaProgramming.*:CudaOneHotSums.*' 3
  check racecheck-repeats racecheck "$repeats"
  check racecheck-lowrank racecheck "CudaLowRank*-*DoublePrecision"
  await
fi
if ! asked benchmarks; then
  cat "$results/summary.txt"
  exit $failed
fi

export PYTHONPATH=$build/python
run benchmark $build/rpucuda_cuda_benchmarks "$results/benchmark.json"
"$python" benchmarks/cuda_table.py "$results/benchmark.json" | tee "$results/table.md" || failed=1
run loops "$python" benchmarks/training_loops.py --out "$results/training_loops.md"
run source "$python" benchmarks/device_source.py
run forecast "$python" benchmarks/forecast_kernels.py --out "$results/forecast_kernels.md"
printf '\n' && cat "$results/summary.txt"
exit $failed
