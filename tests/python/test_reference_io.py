import numpy as np
import pytest

from reference_io import CASES, GOLDEN, IO, AnalogRead, golden_case, golden_inputs, golden_text
from reference_random import Key, Purpose, make_key, normal_of_sample, philox4x32_10


def test_property_39_philox_known_answer() -> None:
    counter = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    words = philox4x32_10(counter, Key(0xA4093822, 0x299F31D0))
    assert [hex(v) for v in words] == ["0xd16cfe09", "0x94fdcceb", "0x5001e420", "0x24126ea1"]


def test_normals_of_lines_and_samples_are_standard_and_independent() -> None:
    # N = 400 x 500; 5 sigma of mean, variance and of the covariance of neighbours.
    lines, samples = np.meshgrid(np.arange(400), np.arange(500), indexing="ij")
    z = normal_of_sample(make_key(1, 2, 3), Purpose.USER_DRAW, lines, samples)
    n = z.size
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z[:, 1:] * z[:, :-1]).mean()) < 5 / np.sqrt(n)
    assert abs((z[1:] * z[:-1]).mean()) < 5 / np.sqrt(n)


def test_the_golden_reads_are_those_of_the_oracle() -> None:
    # Compared as numbers: the last digits may depend on numpy's BLAS.
    golden, now = GOLDEN.read_text(encoding="ascii").split(), golden_text().split()
    assert len(golden) == len(now)
    for old, new in zip(golden, now, strict=True):
        if old != new:
            assert float(new) == pytest.approx(float(old), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", [n for n in CASES if n not in {"defaults", "perfect"}])
def test_each_golden_case_differs_from_the_defaults(name: str) -> None:
    assert not np.allclose(golden_case(CASES[name]), golden_case({}))


def test_bound_management_repeats_some_golden_rows_and_not_others() -> None:
    x, w = golden_inputs()
    read = AnalogRead(IO(out_bound=0.5), make_key(1, 2, 3), w.shape[0], w.shape[1])
    read(w, x)
    assert 0 in read.rounds
    assert max(read.rounds) > 1
