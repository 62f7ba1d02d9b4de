"""The analog read of docs/reference/io.md in numpy and double precision, one sample at a time.

Run as a program, it writes tests/golden/analog_read.txt, which the C++ tests compare with.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reference_io_cases import CASES
from reference_random import (
    Purpose,
    draw,
    make_key,
    normal_of_sample,
    normal_pair,
    part_key,
    uniform,
)

if TYPE_CHECKING:
    from reference_random import (
        Floats,
        Key,
    )

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "analog_read.txt"


@dataclass
class IO:
    """Parameters of a read, with their defaults."""

    is_perfect: bool = False
    mv_type: str = "one_pass"
    inp_bound: float = 1.0
    inp_res: float = 1 / 126
    inp_sto_round: bool = False
    inp_noise: float = 0.0
    inp_asymmetry: float = 0.0
    input_slice_bits: int = 1
    out_bound: float = 12.0
    out_res: float = 1 / 510
    out_sto_round: bool = False
    out_noise: float = 0.06
    out_noise_std: float = 0.0
    out_asymmetry: float = 0.0
    out_scale: float = 1.0
    noise_management: str = "abs_max"
    nm_thres: float = 0.0
    nm_decay: float = 0.001
    nm_assumed_wmax: float = 0.6
    bound_management: str = "iterative"
    bm_backward: bool = False
    max_bm_factor: float = 1000.0
    max_bm_res: float = 0.25
    bm_test_negative_bound: bool = True
    w_noise: float = 0.0
    w_noise_type: str = "none"
    w_read_asymmetry_dtod: float = 0.0
    ir_drop: float = 0.0
    ir_drop_gw_div_gmax: float = 571428.57
    v_offset_std: float = 0.0
    v_offset_w_min: float = -1.0
    r_series: float = 0.0
    r_series_max_total: float = 0.0
    out_nonlinearity: float = 0.0
    out_nonlinearity_std: float = 0.0
    slope_calibration: float = 0.0


def _fraction(res: float) -> float:
    return 1.0 / res if res > 1.0 else res


def _convert(v: Floats, res: float, bound: float, u: Floats | None) -> Floats:
    """On the levels of a converter; stochastically where u is given. Not yet clipped."""
    if res == 0.0:
        return v
    step = 2.0 * bound * _fraction(res)
    return step * (np.rint(v / step) if u is None else np.floor(v / step + u))


def _fit(a: Floats) -> Floats:
    return a * (0.05 * a**2 - 0.2 * a + 0.5)


def _uniform_line(a: Floats) -> Floats:
    """Share of the ideal current that a uniform line of load a > 0 delivers."""
    return np.tanh(np.sqrt(a)) / np.sqrt(a)


def _junction() -> float:
    """The load at which the fit and the uniform line lose the same."""
    low, high = 1.0, 2.0
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        below = _fit(np.array(middle)) < 1.5 * (1.0 - _uniform_line(np.array(middle)))
        low, high = (middle, high) if below else (low, middle)
    return low


JUNCTION = _junction()


def wire_loss(a: Floats) -> tuple[Floats, Floats]:
    """Shares of its current that a cell loses at a load a: always, and times its lateness."""
    t = _uniform_line(np.where(a > 0.0, a, 1.0))
    poor = (a > JUNCTION) & (3.0 * t < 1.0)
    far = np.select([a <= JUNCTION, poor], [_fit(a), 3.0 * t], 1.5 * (1.0 - t))
    return np.where(poor, 1.0 - 3.0 * t, 0.0), far


@dataclass
class AnalogRead:
    """One direction of reading an array W [out, in]."""

    io: IO
    key: Key
    out_size: int
    in_size: int
    backward: bool = False
    average: float = 0.0
    rounds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw the fixed spreads."""
        io, lines = self.io, np.arange(self.out_size)

        def spread(index: int) -> Floats:
            words = draw(self.key, Purpose.IO_CONSTRUCT, lines, int(self.backward), index)
            return normal_pair(words[..., 0], words[..., 1])[..., 0]

        self.noise = np.abs(io.out_noise * (1.0 + io.out_noise_std * spread(0)))
        self.offset = np.maximum(io.v_offset_std * spread(1), 0.0)
        bend = io.out_nonlinearity / io.out_bound if io.out_nonlinearity > 0.0 else 0.0
        self.bend = np.abs(bend * (1.0 + io.out_nonlinearity_std * spread(2)))
        slope = (self.bend.mean() + io.r_series) * io.slope_calibration * io.out_bound
        self.gain = (1.0 + slope) ** 2
        rows, cols = np.indices((self.out_size, self.in_size))
        cell = cols * self.out_size + rows if self.backward else rows * self.in_size + cols
        words = draw(self.key, Purpose.IO_CONSTRUCT, cell, 0, 3)
        self.asymmetry = (
            io.w_read_asymmetry_dtod * normal_pair(words[..., 0], words[..., 1])[..., 0]
        )

    def __call__(self, w: Floats, x: Floats, first_sample: int = 0) -> Floats:
        """Outputs [m, out] for x [m, in], samples first_sample and up."""
        if self.io.is_perfect:
            return x @ w.T
        self.rounds = []
        return np.stack([self._sample(w, row, first_sample + i) for i, row in enumerate(x)])

    def _purpose(self, forward: Purpose) -> Purpose:
        shift = Purpose.BACKWARD_INPUT_NOISE - Purpose.FORWARD_INPUT_NOISE
        return Purpose(forward + shift) if self.backward else forward

    def _worst_case(self, x: Floats) -> float:
        io = self.io
        largest = np.abs(x).max()
        one_sided = max(x[x > 0.0].sum(), -x[x < 0.0].sum())
        needed = one_sided * io.nm_assumed_wmax / io.out_bound
        limit = largest / _fraction(io.inp_res) * io.max_bm_res if io.inp_res > 0.0 else np.inf
        return float(max(largest, min(limit, needed)))

    def _scale(self, x: Floats) -> float:
        io = self.io
        largest = float(np.abs(x).max())
        if io.noise_management == "abs_max":
            return min(largest, io.nm_thres) if io.nm_thres > 0.0 else largest
        if io.noise_management == "max":
            return float(x.max()) if x.max() > 0.0 else float(largest > 0.0)
        if io.noise_management == "constant":
            return io.nm_thres
        if io.noise_management == "average_abs_max":
            change = io.nm_decay * (largest - self.average)
            self.average = self.average + change if self.average > 0.0 else largest
            return self.average
        if io.noise_management == "abs_max_np_sum":
            return self._worst_case(x)
        return 1.0

    def _sample(self, w: Floats, x: Floats, sample: int) -> Floats:
        io = self.io
        scale = self._scale(x)
        limit = io.max_bm_factor
        if io.inp_res > 0.0:
            limit = min(limit, io.max_bm_res / (2.0 * io.inp_bound * _fraction(io.inp_res)))
        factor, reads = 1.0, 0
        while True:
            y, clipped = self._read(w, x, scale, sample, reads)
            managed = io.bound_management != "none" and (io.bm_backward or not self.backward)
            if not (clipped and managed):
                break
            if io.bound_management == "iterative":
                if factor >= limit:
                    break
                factor *= 2.0
                scale *= 2.0
            else:
                if reads == 1:
                    break
                scale = max(scale, self._worst_case(x))
            reads += 1
        self.rounds.append(reads)
        return y * scale * io.out_scale

    def _read(
        self, w: Floats, x: Floats, scale: float, sample: int, reads: int
    ) -> tuple[Floats, bool]:
        io = self.io
        lines = np.arange(self.in_size)
        u = None
        if io.inp_sto_round:
            purpose = self._purpose(Purpose.FORWARD_INPUT_ROUND)
            u = uniform(draw(self.key, purpose, lines, sample, 2 * reads)[..., 0])
        v = _convert(x / (scale if scale > 0.0 else 1.0), io.inp_res, io.inp_bound, u)
        if io.inp_bound > 0.0:
            v = np.clip(v, -io.inp_bound, io.inp_bound)
        if io.mv_type in {"bit_serial", "bit_serial_analog_sum"}:
            return self._read_slices(w, v, sample)
        v = self._driven(v, sample, 2 * reads)
        if io.mv_type in {"one_pass", "ideal"}:
            return self._convert_output(self._array(w, v, sample, 2 * reads), sample, 2 * reads)
        positive = self._array(w, np.maximum(v, 0.0), sample, 2 * reads)
        negative = self._array(
            w, np.minimum(v, 0.0), sample, 2 * reads + 1, w * (1.0 + self.asymmetry)
        )
        if io.mv_type == "pos_neg_separate":
            return self._convert_output(positive + negative, sample, 2 * reads)
        first, first_clipped = self._convert_output(positive, sample, 2 * reads)
        second, second_clipped = self._convert_output(negative, sample, 2 * reads + 1)
        return first + second, first_clipped or second_clipped

    def _driven(self, v: Floats, sample: int, index: int) -> Floats:
        """The outputs of the DAC for levels v, with noise and asymmetry."""
        io, lines = self.io, np.arange(self.in_size)
        purpose = self._purpose(Purpose.FORWARD_INPUT_NOISE)
        v = v + io.inp_noise * normal_of_sample(self.key, purpose, lines, sample, index)
        return np.where(v < 0.0, v * (1.0 - io.inp_asymmetry), v)

    def _read_slices(self, w: Floats, v: Floats, sample: int) -> tuple[Floats, bool]:
        """The digits of the levels, lowest first, each read with noise of its own."""
        io, own_key, total = self.io, self.key, np.zeros(self.out_size)
        step = 2.0 * io.inp_bound * _fraction(io.inp_res)
        bits = len(f"{round(io.inp_bound / step):b}")
        base = 2**io.input_slice_bits
        count = -(-bits // io.input_slice_bits)
        zeros = 2 ** (count * io.input_slice_bits - bits)  # that fill the lowest digit up
        level = np.rint(np.abs(v) / step).astype(int) * zeros
        for number in range(count):
            self.key = part_key(own_key, 2**31 + number)
            digit = np.copysign(level // base**number % base, v)
            driven = self._driven(digit * io.inp_bound / (base - 1), sample, 0)
            y = self._array(w, driven, sample, 0)
            if io.mv_type == "bit_serial":
                y, _ = self._convert_output(y, sample, 0)
            total = total + y * (base - 1) * base**number * step / io.inp_bound / zeros
        self.key = own_key
        if io.mv_type == "bit_serial":
            return total, False
        return self._convert_output(total, sample, 0)

    def _array(
        self, w: Floats, v: Floats, sample: int, index: int, seen: Floats | None = None
    ) -> Floats:
        """One pass of v through the array, up to the output stage; `seen` are the read weights."""
        io, n = self.io, self.in_size
        y = (w if seen is None else seen) @ v
        a = np.abs(w) @ np.abs(v) * n / io.ir_drop_gw_div_gmax
        late = w @ (v * (1.0 - (1.0 - np.arange(n) / n) ** 2))
        everywhere, far = wire_loss(a)
        y = y - io.ir_drop * (everywhere * y + far * late)
        if io.v_offset_std > 0.0 or io.r_series > 0.0:
            most = io.r_series_max_total if io.r_series_max_total > 0.0 else np.inf

            def left(current: Floats) -> Floats:
                return current / (1.0 + np.minimum(io.r_series * np.abs(current), most))

            reference = np.full_like(y, -io.v_offset_w_min * v.sum())
            y = (1.0 - self.offset) * left(y + reference) - (1.0 + self.offset) * left(reference)
        squares = v @ v if io.w_noise_type == "additive_constant" else np.abs(w) @ v**2
        purpose = self._purpose(Purpose.FORWARD_WEIGHT_NOISE)
        z = normal_of_sample(self.key, purpose, np.arange(self.out_size), sample, index)
        return y + io.w_noise * np.sqrt(squares) * z

    def _convert_output(self, y: Floats, sample: int, index: int) -> tuple[Floats, bool]:
        io, lines = self.io, np.arange(self.out_size)
        y = self.gain * y / (1.0 + np.abs(self.bend * y))
        y = np.where(y < 0.0, y * (1.0 - io.out_asymmetry), y)
        purpose = self._purpose(Purpose.FORWARD_OUTPUT_NOISE)
        y = y + self.noise * normal_of_sample(self.key, purpose, lines, sample, index)
        u = None
        if io.out_sto_round:
            purpose = self._purpose(Purpose.FORWARD_OUTPUT_ROUND)
            u = uniform(draw(self.key, purpose, lines, sample, index)[..., 0])
        y = _convert(y, io.out_res, io.out_bound, u)
        if io.out_bound == 0.0:
            return y, False
        # The library holds numbers in float32: a level that is the bound must not exceed it here.
        outside = io.out_bound * (1.0 + 1e-6)
        clipped = bool((y > outside).any())
        if io.bm_test_negative_bound:
            clipped = clipped or bool((y < -outside).any())
        return np.clip(y, -io.out_bound, io.out_bound), clipped


KEY = (20, 3, 16)  # seed, tile, array
FIRST_SAMPLE = 4294967285  # so that samples cross a block of eight and 2^32


def golden_inputs() -> tuple[Floats, Floats]:
    """Inputs [13, 19] of very different size (one row is zero) and weights [7, 19], as float32."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(13, 19)) * np.exp(rng.normal(size=(13, 1)))
    x[4] = 0.0
    w = rng.uniform(-0.6, 0.6, size=(7, 19))
    return x.astype(np.float32).astype(np.float64), w.astype(np.float32).astype(np.float64)


def golden_case(settings: dict[str, Any]) -> Floats:
    """The outputs that a case must give, [13, 7]."""
    x, w = golden_inputs()
    values = {f.name: settings.get(f.name, f.default) for f in fields(IO)}
    # Parameters reach the library as float32.
    rounded = {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in values.items()}
    backward = settings.get("_backward", False)
    read = AnalogRead(IO(**rounded), make_key(*KEY), w.shape[0], w.shape[1], backward)
    return read(w, x, FIRST_SAMPLE)


def golden_text() -> str:
    """All cases, as the C++ test reads them."""

    def matrix(name: str, values: Floats) -> list[str]:
        rows = [" ".join(f"{v:.9g}" for v in row) for row in values]
        return [f"{name} {values.shape[0]} {values.shape[1]}", *rows]

    x, w = golden_inputs()
    lines = ["key {} {} {} {}".format(*KEY, FIRST_SAMPLE), *matrix("x", x), *matrix("w", w)]
    for name, settings in CASES.items():
        lines.append(f"case {name} {'backward' if settings.get('_backward') else 'forward'}")
        for parameter, value in settings.items():
            if not parameter.startswith("_"):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                lines.append(f"{parameter} {text}")
        lines += matrix("y", golden_case(settings))
    return "\n".join([*lines, "end", ""])


if __name__ == "__main__":
    GOLDEN.write_text(golden_text(), encoding="ascii")
