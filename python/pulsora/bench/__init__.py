"""Timings of tiles beside the limits of the machine: `pulsora bench`, for use from Python.

    place = Place("cpu", threads=2)
    ceilings = measure_ceilings(place)
    for case in cases(models=["SoftBounds"], sizes=[512], batch=64, ranks=[0, 8]):
        result = run(case, place)
        print(case.tile, case.operation, result.time.median, result.reached(ceilings))

with `cases` of `pulsora.bench.cases`, `run` of `pulsora.bench.measure`, and `Place` and
`measure_ceilings` of `pulsora.bench.machine`. The bound of a case is the larger of its least bytes
over the copy bandwidth and its least operations over the rate of fused multiply-adds, both measured
in the same process.
"""
