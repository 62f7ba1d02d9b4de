# reads and steps of the adapter
# timeout 60
T=$BUILD/rpucuda_tests; B=$BUILD/rpucuda_cuda_benchmarks
timeout 25 $T --gtest_filter='CudaTile*:CudaStream*:CudaUpdate*' 2>&1 | grep -v "^\[ RUN\|^\[       OK" | cut -c1-400 | tail -40
timeout 20 $B $OUT/lrtt.json LRTT
timeout 10 $B $OUT/fwd.json ward
P='import csv,sys
rows=[r for r in csv.reader(sys.stdin) if len(r)>10]
h=rows[0]; k=h.index("Kernel Name"); v=h.index("Metric Value"); i=h.index("ID")
d={}
for r in rows[1:]: d.setdefault(r[i],[r[k][:46]]).append(r[v])
for e in d.values(): print(*e)'
prof() { echo "== $1"; timeout 8 ncu --cache-control none --clock-control none --metrics gpu__time_duration.sum,launch__grid_size,launch__block_size,launch__registers_per_thread --kill yes --csv --print-kernel-base function --launch-skip $2 --launch-count $3 $B /dev/null "$1" 2>/dev/null | python3 -c "$P"; }
prof "step LRTT K=8 512 without" 40 8
prof "step LRTT K=8 1024 without" 40 8
prof "step LRTT K=8 4096 without" 70 16
prof "forward LRTT K=16 4096" 40 8
# The tenth step and its transfer, after what the first ones and the tile's making launch.
prof "step LRTT K=8 4096 transfer every 10" 120 60
