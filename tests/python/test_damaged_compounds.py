"""States of compounds whose buffers, choppers, means or counters are damaged are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS = pl.devices.SoftBounds(dw_min=0.01)
KINDS: dict[str, pl.TileConfig] = {
    "v1": pl.TikiTaka(CELLS, transfer_every=3),
    "sum": pl.TTv2(CELLS, transfer_every=3),
    "chopped": pl.ChoppedTTv2(CELLS, fast_lr=0.1, transfer_every=3),
    "dynamic": pl.AGAD(CELLS, fast_lr=0.1, transfer_every=3, auto_scale=True),
    "follows": pl.MixedPrecisionConfig(visible=CELLS),
    "collects": pl.MixedPrecisionConfig(visible=CELLS, digital_weight=False, transfer_every=3),
    "one-sided": pl.OneSidedConfig(device=CELLS.replace(w_min=0.0), refresh_every=3),
}
OTHER = "expected; the state belongs to another configuration"


def trained(kind: str, updates: int = 4) -> pl.Tile:
    rng = np.random.default_rng(updates)
    tile = pl.Tile(4, 5, KINDS[kind], seed=1)
    for _ in range(updates):
        if kind == "follows":
            tile.follow(rng.uniform(-0.3, 0.3, (4, 5)).astype(np.float32))
        else:
            x, d = (rng.uniform(-1, 1, (2, n)).astype(np.float32) for n in (5, 4))
            tile.update(x, d, 0.1)
    return tile


def own_tensors(kind: str) -> list[str]:
    """Names of tensors of the compound itself, beside those of its arrays."""
    names = trained(kind).state().tensors
    return [name for name in names if not name.endswith(("cells", "weights"))]


def refused(
    kind: str, message: str, tensors: dict[str, Any] | None = None, **values: object
) -> None:
    """Checks that a signed state with these changes is refused, and that nothing changes."""
    good = trained(kind).state()
    kept: dict[str, NDArray[Any]] = {
        name: value for name, value in (good.tensors | (tensors or {})).items() if value is not None
    }
    bad = pl.State(kept, {**good.values, **values}).signed()
    tile = trained(kind, 2)
    before = pl.state.dumps(tile.state())
    with pytest.raises(pl.StateError, match=message):
        tile.load_state(bad)
    assert pl.state.dumps(tile.state()) == before
    tile.load_state(good)  # the state that was damaged is itself good


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in own_tensors(kind)],
)
def test_tensors(kind: str, name: str) -> None:
    value = trained(kind).state().tensors[name]
    refused(kind, "not finite", {name: np.full_like(value, np.nan)})
    refused(kind, OTHER, {name: value[:-1].copy()})
    refused(kind, OTHER, {name: value.astype(np.float16)})
    refused(kind, "another configuration or is incomplete", {name: None})


@pytest.mark.parametrize("kind", ["chopped", "dynamic"])
@pytest.mark.parametrize("name", ["line_signs", "other_signs"])
def test_choppers_are_signs(kind: str, name: str) -> None:
    full = f"transfer_0/{name}"
    signs = trained(kind).state().tensors[full]
    signs[1] = 0.5
    refused(kind, rf"'{full}' of the state has 0.5, element 1 in order", {full: signs})


def test_running_maxima_are_not_negative() -> None:
    maxima = trained("dynamic").state().tensors["running_maxima"]
    maxima[0] = -1.0
    refused("dynamic", "has -1, element 0 in order", {"running_maxima": maxima})


COUNTS = {
    "sum": ["transfer_0/reads", "transfer_0/origin", "transfer_0/since"],
    "dynamic": ["transfer_0/reads", "last_batch", "batch_samples"],
    "collects": ["first_row", "owes", "rows_sent", "since_transfer"],
    "one-sided": ["refreshes", "since_refresh"],
}


@pytest.mark.parametrize(
    ("kind", "name"), [(k, name) for k, names in COUNTS.items() for name in names]
)
def test_counters(kind: str, name: str) -> None:
    refused(kind, rf"no count '{name}'", **{name: -1})
    refused(kind, "damaged", **{name: 2**62})
    refused(kind, "of another kind", **{name: 1.5})


@pytest.mark.parametrize(("of", "into"), [("sum", "chopped"), ("dynamic", "sum"), ("v1", "sum")])
def test_states_of_other_algorithms(of: str, into: str) -> None:
    tile = trained(into)
    before = pl.state.dumps(tile.state())
    with pytest.raises(pl.StateError, match="config"):
        tile.load_state(trained(of).state())
    assert pl.state.dumps(tile.state()) == before
