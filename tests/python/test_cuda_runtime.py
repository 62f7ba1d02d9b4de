"""Code that is compiled, loaded and launched while a program runs, on a GPU."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora import runtime


def _usable() -> bool:
    try:
        runtime.zeros(1, "float32")
    except pl.DeviceError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _usable(), reason="no GPU, or no driver of one")

TEXT = """
extern "C" __global__ void add(float *out, const float *a, const float *b, long size) {
  const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < size) out[i] = a[i] + b[i];
}
template <class T>
__global__ void scale(T *data, T by, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) data[i] *= by;
}
extern "C" __global__ void product(float *c, const float *a, const float *b, int n) {
  __shared__ float as[16][16], bs[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < n; k += 16) {
    as[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + col] = sum;
}
"""
ADD = ("float32*", "float32*", "float32*", "int64")


@pytest.fixture(scope="module")
def program() -> runtime.Program:
    return runtime.load(
        runtime.compile_source(TEXT, kernels=["add", "product", "scale<float>", "scale<double>"])
    )


def test_a_sum_is_exact(program: runtime.Program) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 100_001)).astype(np.float32)
    out = runtime.zeros(a.size, np.float32)
    stream = runtime.Stream()
    program.function("add", ADD).launch(
        782, 128, out, runtime.upload(a), runtime.upload(b), a.size, stream=stream
    )
    assert out.numpy(stream).tobytes() == (a + b).tobytes()


def test_templates_are_found_by_their_expression(program: runtime.Program) -> None:
    data = runtime.upload(np.arange(6.0).reshape(2, 3))
    program.function("scale<double>", ("float64*", "float64", "int32")).launch(1, 32, data, 0.5, 6)
    assert data.numpy().tolist() == [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5]]


def test_tensors_are_arguments(program: runtime.Program) -> None:
    a = torch.arange(5, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    program.function("add", ADD).launch(1, 32, a, a, a, np.int64(5))
    torch.cuda.synchronize()
    assert a.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_a_product_is_far_faster_than_on_the_cpu(program: runtime.Program) -> None:
    n = 1024
    a, b = np.random.default_rng(0).normal(size=(2, n, n)).astype(np.float32)
    given = [runtime.upload(each) for each in (a, b)]
    out = runtime.zeros((n, n), np.float32)
    product = program.function("product", ("float32*", "float32*", "float32*", "int32"))
    stream = runtime.Stream()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        product.launch((n // 16, n // 16), (16, 16), out, *given, n, stream=stream)
        stream.synchronize()
        seconds.append(time.perf_counter() - start)
    tile = pl.Tile(n, n, pl.IdealConfig(forward=pl.IOParameters(is_perfect=True)), threads=1)
    start = time.perf_counter()
    tile.forward(a)
    assert 10.0 * min(seconds) < time.perf_counter() - start
    np.testing.assert_allclose(out.numpy(), a.astype(np.float64) @ b, rtol=0.0, atol=1e-3)


def test_a_function_that_is_not_there_is_named(program: runtime.Program) -> None:
    with pytest.raises(pl.ConfigError, match="no kernel 'subtract' in the code"):
        program.function("subtract", ADD)


def test_wrong_types_are_told(program: runtime.Program) -> None:
    with pytest.raises(pl.ConfigError, match=r"types has 3 entries, but .* has 4 parameters"):
        program.function("add", ADD[:3])
    with pytest.raises(pl.ConfigError, match=r"types\[3\] is 'int32', of 4 bytes, .* has 8"):
        program.function("add", (*ADD[:3], "int32"))
    with pytest.raises(pl.ConfigError, match="type is 'single', which is no type"):
        program.function("add", (*ADD[:3], "single"))


def test_wrong_arguments_are_told(program: runtime.Program) -> None:
    add = program.function("add", ADD)
    a, b = runtime.zeros(8, np.float32), runtime.zeros(8, np.float64)
    with pytest.raises(pl.InputError, match="'add' takes 4 arguments, and was given 3"):
        add.launch(1, 32, a, a, a)
    with pytest.raises(pl.InputError, match=r"argument 2 .* of type float64\*; pass float32\*"):
        add.launch(1, 32, a, a, b, 8)
    with pytest.raises(pl.InputError, match=r"argument 3 .* of type float; pass int64"):
        add.launch(1, 32, a, a, a, 8.0)
    with pytest.raises(pl.InputError, match=r"argument 3 .* of type int32; pass int64"):
        add.launch(1, 32, a, a, a, np.int32(8))
    assert a.numpy().tolist() == [0.0] * 8


def test_a_grid_that_is_not_possible_is_told(program: runtime.Program) -> None:
    add, a = program.function("add", ADD), runtime.zeros(8, np.float32)
    for blocks, threads, shared, told in (
        (0, 32, 0, "blocks.x is 0"), (1, 2048, 0, "threads.x is 2048"),
        ((1, 70000), 32, 0, "blocks.y is 70000"), (1, (32, 64), 0, "threads are 2048"),
        (1, 32, -1, "shared_bytes is -1"), (1, (1, 1, 1, 1), 0, "threads has 4 directions"),
    ):  # fmt: skip
        with pytest.raises(pl.ConfigError, match=told):
            add.launch(blocks, threads, a, a, a, 8, shared_bytes=shared)
    add.launch(1, 32, a, a, a, 8)
    assert a.numpy().tolist() == [0.0] * 8


def test_memory_that_is_not_there_is_told(program: runtime.Program) -> None:
    with pytest.raises(pl.OutOfMemoryError, match="allocate"):
        runtime.zeros(1 << 44, np.uint8)
    with pytest.raises(pl.OutOfMemoryError, match="does not fit into any memory"):
        runtime.zeros(1 << 62, np.float64)
    test_a_sum_is_exact(program)  # goes on


def test_code_for_another_gpu_is_refused() -> None:
    with pytest.raises(pl.CompileError, match="load code for GPU 0"):
        runtime.load(b"\x7fELF no code")
    with pytest.raises(pl.ConfigError, match="device is 77; this machine has"):
        runtime.load(b"", 77)
