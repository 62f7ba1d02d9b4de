"""Gated adapters in torch, in arrays and in tiles: results, gradients, gates."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import (
    AnalogLinear,
    GatedAdapter,
    LearnedGate,
    MixtureGate,
    TaskGate,
    replayed_reads,
    select_task,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Exact products, and updates by floating-point outer products.
EXACT: dict[str, Any] = {**PERFECT, "update": pl.UpdateParameters(pulse_type="none")}
CELLS = pl.devices.ConstantStep(w_max=2.0, w_min=-2.0, w_max_dtod=0.0, w_min_dtod=0.0)
IDEAL = pl.IdealConfig(**PERFECT)
LRTT = pl.LRTTConfig(
    rank=2, visible=CELLS, fast=CELLS, transfer_every=0, projection="exact", **EXACT
)


def inputs(device: str = "cpu", *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (5, 6)), generator=torch.Generator().manual_seed(1)).to(device)


def adapter(device: str = "cpu", **settings: Any) -> GatedAdapter:
    torch.manual_seed(0)
    made = GatedAdapter(nn.Linear(6, 4), **({"rank": 2, "alpha": 1.5} | settings)).to(device)
    rng = torch.Generator().manual_seed(2)
    n = made.components
    made.set_factors(0.3 * torch.randn(4, n, generator=rng), 0.3 * torch.randn(n, 6, generator=rng))
    return made


def expected(made: GatedAdapter, x: torch.Tensor, codes: torch.Tensor | float) -> torch.Tensor:
    a, b = made.factors()
    y: torch.Tensor = made.base(x) + made.alpha * ((x @ b.T) * codes) @ a.T
    return y


@pytest.mark.parametrize("config", [None, IDEAL, pl.SingleConfig(device=CELLS, **PERFECT)])
def test_a_new_adapter_contributes_nothing_and_then_what_its_formula_says(
    config: pl.TileConfig | None, device: str
) -> None:
    new = GatedAdapter(nn.Linear(6, 4), 2, config=config, seed=1).to(device)
    x = inputs(device, 3, 5, 6)
    torch.testing.assert_close(new(x), new.base(x))
    made = adapter(device, config=config, gate=[0.5, -2.0])
    codes = torch.tensor([0.5, -2.0], device=device)
    torch.testing.assert_close(made(x), expected(made, x, codes), rtol=1e-5, atol=1e-5)
    assert (made(x) - made.base(x)).norm() > 0.1


@pytest.mark.parametrize("config", [None, IDEAL])
def test_gradients_reach_inputs_gates_and_factors(
    config: pl.TileConfig | None, device: str
) -> None:
    made = adapter(device, config=config, gate=LearnedGate(6, 2, hidden=4))
    gate = made.gate
    assert isinstance(gate, LearnedGate)
    nn.init.normal_(gate.outer, generator=torch.Generator(device).manual_seed(3))
    x = inputs(device).requires_grad_()
    d = inputs(device, 5, 4)
    made(x).backward(d)
    a, b = (factor.requires_grad_() for factor in made.factors())
    x_twin, gate_twin = x.detach().clone().requires_grad_(), copy.deepcopy(gate)
    codes = gate_twin(x_twin)
    (made.base(x_twin) + made.alpha * ((x_twin @ b.T) * codes) @ a.T).backward(d)
    pairs = [(x, x_twin), *zip(gate.parameters(), gate_twin.parameters(), strict=True)]
    mine = (made.a, made.b) if config is None else (made.up.analog_weight, made.down.analog_weight)
    for one, two in [*pairs, *zip(mine, (a, b), strict=True)]:
        assert one.grad is not None
        assert two.grad is not None
        torch.testing.assert_close(one.grad + 0.0, two.grad, rtol=1e-4, atol=1e-5)
        assert two.grad.norm() > 0.0


def test_gates_of_zero_give_zero_gradients_and_the_output_of_the_base() -> None:
    made = adapter(gate=0.0)
    x = inputs()
    assert torch.equal(made(x), made.base(x))
    made(x).sum().backward()
    assert made.a.grad is not None
    assert made.b.grad is not None
    assert not made.a.grad.any()
    assert not made.b.grad.any()


@pytest.mark.parametrize("config", [None, IDEAL])
def test_a_task_chooses_its_adapter_for_all_or_for_each_sequence(
    config: pl.TileConfig | None, device: str
) -> None:
    made = adapter(device, gate=TaskGate(3), adapters=3, config=config)
    x = inputs(device, 2, 5, 6)
    a, b = made.factors()

    def of_task(task: int, x: torch.Tensor) -> torch.Tensor:
        part = slice(2 * task, 2 * task + 2)
        y: torch.Tensor = made.base(x) + made.alpha * x @ b[part].T @ a[:, part].T
        return y

    for task in range(3):
        select_task(nn.Sequential(made), task)
        torch.testing.assert_close(made(x), of_task(task, x), rtol=1e-5, atol=1e-5)
    select_task(made, torch.tensor([2, 1]))
    both = torch.stack([of_task(2, x[0]), of_task(1, x[1])])
    torch.testing.assert_close(made(x), both, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        (3, ValueError, "tasks are numbered from 0 to 2"),
        (-1, ValueError, "tasks are numbered from 0 to 2"),
        (0.5, TypeError, "give whole numbers"),
        (torch.zeros(2, 2, dtype=torch.long), ValueError, r"shape \[2, 2\]"),
    ],
)
def test_tasks_that_do_not_exist_are_refused(
    task: float | torch.Tensor, error: type[Exception], message: str
) -> None:
    made = adapter(gate=TaskGate(3), adapters=3)
    select_task(made, 2)
    with pytest.raises(error, match=message):
        select_task(made, task)  # type: ignore[arg-type]
    assert made.gate is not None
    assert int(made.gate.task) == 2
    select_task(made, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"2 tasks were selected for x of shape \[5, 6\]"):
        made(inputs())
    with pytest.raises(ValueError, match="model has no TaskGate"):
        select_task(nn.Linear(2, 2), 0)


def test_a_selected_task_is_kept_whatever_becomes_of_the_tensor() -> None:
    made = GatedAdapter(nn.Linear(6, 4), 2, TaskGate(2), adapters=2)
    tasks = torch.tensor([0, 1, 0])
    select_task(made, tasks)
    tasks.fill_(5)  # a loader's buffer, used again
    assert made.gate is not None
    assert torch.equal(made.gate.task, torch.tensor([0, 1, 0]))


def test_a_mixture_of_frozen_adapters_learns_its_coefficients_alone() -> None:
    made = adapter(gate=MixtureGate(2), adapters=2).freeze_factors()
    made.base.requires_grad_(requires_grad=False)
    wanted = copy.deepcopy(made)
    with torch.no_grad():
        wanted.gate.coefficients.copy_(torch.tensor([0.2, 1.3]))
    a, b = made.factors()
    optimizer = torch.optim.Adam([p for p in made.parameters() if p.requires_grad], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        (made(inputs()) - wanted(inputs())).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(
        made.gate.coefficients, wanted.gate.coefficients, rtol=0.05, atol=0.05
    )
    assert torch.equal(made.factors()[0], a)
    assert torch.equal(made.factors()[1], b)


def test_pulsed_factors_train_as_those_in_the_tiles_of_an_lrtt_layer(device: str) -> None:
    # The same algorithm in two forms: A and B in each tile, with learning rates that follow their
    # sizes; and A and B as layers of their own, whose cells are scaled.
    layer = AnalogLinear(6, 4, config=LRTT, seed=1, device=device)
    base = nn.Linear(6, 4).to(device)
    fast = pl.SingleConfig(device=CELLS, **EXACT)
    apart = GatedAdapter(base, 2, config=fast, seed=1)
    (tile,) = layer.tiles
    with torch.no_grad():
        base.weight.copy_(layer.weight)
        base.bias.copy_(layer.bias)
    down, up = apart.down.tiles, apart.up.tiles
    # The cells of B are the same; both B stand for the same part of the weights then.
    down.set_weights(torch.as_tensor(tile.adapter.b.copy()) * down.scales.cpu(), down.scales)
    for optimizer, model in [
        (pl.optim.AnalogSGD(layer.parameters(), lr=0.1), layer),
        (
            pl.optim.AnalogSGD(
                [*apart.up.parameters(), *apart.down.parameters(), base.bias], lr=0.1
            ),
            apart,
        ),
    ]:
        for step in range(5):
            optimizer.zero_grad()
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step)).to(device)
            (model(x) - x[:, :4]).square().mean().backward()
            optimizer.step()
    x = inputs(device)
    torch.testing.assert_close(apart(x), layer(x), rtol=1e-4, atol=1e-5)
    assert (layer(x) - base(x)).norm() > 0.01  # the adapter has learned
    torch.testing.assert_close(
        up.get_weights() / up.scales,
        torch.as_tensor(tile.adapter.a.copy()).to(device),
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.parametrize("cut", [0, 3])
def test_gates_of_an_lrtt_layer_and_their_gradients(cut: int, device: str) -> None:
    layer = AnalogLinear(
        6, 4, config=LRTT, seed=1, max_input_size=cut, device=device, weight_scaling=0.5
    )
    for tile in layer.tiles:
        tile.adapter.a = (
            0.3 * torch.randn(tile.d_size, 2, generator=torch.Generator().manual_seed(1)).numpy()
        )
    made = GatedAdapter(layer, gate=LearnedGate(6, 2, hidden=4))
    made.to(device)
    nn.init.normal_(made.gate.outer, generator=torch.Generator(device).manual_seed(3))
    x = inputs(device, 2, 3, 6).requires_grad_()
    twin, gate = x.detach().clone().requires_grad_(), copy.deepcopy(made.gate)
    codes = gate(twin)
    y = layer.bias.detach().expand(2, 3, 4)
    for col, tile in zip(layer.tiles.cols, layer.tiles, strict=True):
        alpha = tile.explain(
            *(torch.zeros(1, n, device=device) for n in (tile.x_size, tile.d_size)), 1.0
        )["alpha"]
        w, a, b = (
            torch.tensor(m, device=device) for m in (tile.visible, tile.adapter.a, tile.adapter.b)
        )
        part = twin[..., col]
        y = y + layer.tiles.scales * (part @ w.T + alpha * (codes * (part @ b.T)) @ a.T)
    read = made(x)
    torch.testing.assert_close(read, y, rtol=1e-4, atol=1e-5)
    d = inputs(device, 2, 3, 4)
    read.backward(d)
    y.backward(d)
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-4, atol=1e-5)
    for one, two in zip(made.gate.parameters(), gate.parameters(), strict=True):
        assert two.grad is not None
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5)
    pairs = layer.analog_weight.grad.pairs
    assert [tuple(pair.gate.shape) for pair in pairs] == [(6, 2)]


def test_updates_of_gated_layers_are_those_of_their_tiles() -> None:
    layer = AnalogLinear(6, 4, bias=False, config=LRTT, seed=1)
    (tile,) = layer.tiles
    twin = copy.deepcopy(tile)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1)
    gate = torch.tensor([1.0, 0.0])
    for _ in range(3):
        optimizer.zero_grad()
        y = layer(inputs(), gate)
        d = 0.1 * torch.ones(5, 4)
        y.backward(d)
        optimizer.step()
        rows = gate.expand(5, 2).contiguous().numpy()
        twin.adapter.forward(inputs().numpy(), rows)
        twin.adapter.update(inputs().numpy(), d.numpy(), rows, 0.1)
    assert (tile.adapter.a == twin.adapter.a).all()
    assert tile.adapter.a[:, 0].any()
    assert not tile.adapter.a[:, 1].any()  # a component that was shut has learned nothing


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GatedAdapter(nn.ReLU(), 2), TypeError,
         "base = ReLU: .* in_features and out_features"),
        (lambda: GatedAdapter(nn.Linear(3, 3)), ValueError, "rank = None .* it has none"),
        (lambda: GatedAdapter(nn.Linear(3, 3), 0), ValueError, "rank must be at least 1"),
        (lambda: GatedAdapter(nn.Linear(3, 3), 1, alpha=float("nan")), ValueError, "alpha = nan"),
        (lambda: GatedAdapter(nn.Linear(3, 3), 1, threads=1), ValueError, "options of arrays"),
        (lambda: GatedAdapter(nn.Linear(3, 3), 4, config=IDEAL), ValueError,
         "at most in_features = 3"),
        (lambda: GatedAdapter(AnalogLinear(3, 3, config=LRTT), alpha=1.0), ValueError,
         "rank = None"),
        (lambda: adapter(gate=[1.0, 2.0, 3.0])(inputs()), ValueError,
         "gives 3 weights .* takes 1, 1 .* or 2"),
        (lambda: adapter(gate=[[1.0]]), ValueError, "give a number, or a row"),
        (lambda: adapter().set_factors(torch.zeros(4, 3), torch.zeros(2, 6)), ValueError,
         r"a has shape \[4, 3\]; expected \[4, 2\]"),
        (lambda: adapter().set_factors(torch.full((4, 2), torch.inf), torch.zeros(2, 6)),
         ValueError, "a has values that are not finite"),
        (lambda: AnalogLinear(3, 3)(torch.ones(2, 3), torch.ones(2)), ValueError,
         "the tiles have no adapter"),
        (lambda: AnalogLinear(6, 4, config=LRTT)(inputs(), torch.ones(3)), ValueError,
         "gate has 3 numbers"),
        (lambda: AnalogLinear(6, 4, config=LRTT)(inputs(), torch.ones(4, 2)), ValueError,
         r"gate has shape \[4, 2\]"),
        (lambda: AnalogLinear(7, 4, config=pl.LRTTConfig(), max_input_size=5)(
            inputs("cpu", 5, 7), torch.ones(1)), ValueError, r"ranks \[3, 4\]"),
        (lambda: GatedAdapter(AnalogLinear(6, 4, config=LRTT)).factors(), ValueError,
         "in the tiles"),
        (lambda: checkpoint(
            AnalogLinear(6, 4, config=LRTT), inputs().requires_grad_(), torch.ones(2),
            use_reentrant=False, context_fn=replayed_reads).sum().backward(),
         RuntimeError, "gated reads of tiles cannot be repeated"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    make: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


def test_loaded_factors_fill_half_of_the_cells_and_keep_their_product(device: str) -> None:
    made = GatedAdapter(
        nn.Linear(6, 4), 2, config=pl.SingleConfig(device=CELLS, **PERFECT), seed=1
    ).to(device)
    a = torch.tensor([[4.0, 0.01]]).repeat(4, 1) * torch.randn(4, 2)
    b = torch.tensor([[1e-3], [50.0]]) * torch.randn(2, 6)
    written = made.set_factors(a, b, alpha=0.25)
    assert written.clipped == 0
    assert written.error < 1e-6
    new_a, new_b = made.factors()
    torch.testing.assert_close((new_a @ new_b).cpu(), a @ b, rtol=1e-5, atol=1e-6)
    for layer in (made.up, made.down):
        (tile,) = layer.tiles
        assert abs(tile.weights).max() == pytest.approx(1.0)  # half of 2.0
    sizes = new_a.abs().amax(0) / new_a.abs().max(), new_b.abs().amax(1) / new_b.abs().max()
    torch.testing.assert_close(*sizes)  # no side of a component is left empty


def test_saved_states_go_on_and_copies_are_independent(device: str) -> None:
    made = adapter(device, config=pl.SingleConfig(device=CELLS), gate=TaskGate(2), adapters=2)
    made.alpha = 0.7
    other = GatedAdapter(
        nn.Linear(6, 4), 2, TaskGate(2), adapters=2, config=pl.SingleConfig(device=CELLS), seed=9
    ).to(device)
    other.load_state_dict(made.state_dict())
    assert other.alpha == 0.7
    again = copy.deepcopy(made)
    x = inputs(device)
    for model in (made, other, again):
        for tile in (*model.up.tiles, *model.down.tiles):
            tile.gpu_products = "reproducible"
    seen = [model(x) for model in (made, other, again)]
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("config", [None, IDEAL])
def test_the_base_may_have_any_type(
    kind: torch.dtype, config: pl.TileConfig | None, device: str
) -> None:
    made = adapter(device, config=config)
    plain = made(inputs(device))
    made.base.to(kind)
    y = made(inputs(device).to(kind))
    assert y.dtype == kind
    torch.testing.assert_close(y.float(), plain, rtol=0.05, atol=0.05)
    with torch.autocast(device, dtype=torch.bfloat16):
        made.base.float()
        assert made(inputs(device)).dtype == torch.bfloat16
