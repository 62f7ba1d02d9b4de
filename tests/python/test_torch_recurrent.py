"""Analog recurrent layers beside torch's: outputs, states, gradients, updates, input forms."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from pulsora.nn import AnalogGRU, AnalogLSTM, AnalogRNN, AnalogRNNBase, replayed_reads
from pulsora.optim import AnalogSGD

IDEAL = pl.IdealConfig(
    forward=pl.IOParameters(is_perfect=True), backward=pl.IOParameters(is_perfect=True)
)
TWINS: dict[type[AnalogRNNBase], type[nn.RNNBase]] = {
    AnalogRNN: nn.RNN,
    AnalogLSTM: nn.LSTM,
    AnalogGRU: nn.GRU,
}
KINDS = list(TWINS)
DEVICE = "cuda" if torch.cuda.is_available() and pl.cuda_device_count() > 0 else "cpu"


@pytest.fixture(autouse=True)
def _single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own layers on a GPU round to 10 bits otherwise."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def pair(kind: type[AnalogRNNBase], **options: Any) -> tuple[nn.Module, AnalogRNNBase]:
    """torch's layer, and the analog one with its weights."""
    tiles = {name: options.pop(name) for name in {"digital_bias"} & set(options)}
    torch.manual_seed(0)
    digital = TWINS[kind](3, 4, **options).to(DEVICE)
    analog = kind(3, 4, config=IDEAL, seed=1, device=DEVICE, max_input_size=3, **options, **tiles)
    analog.set_weights(digital.state_dict())
    return digital, analog


def tensors(value: Any) -> list[torch.Tensor]:  # noqa: ANN401
    if isinstance(value, PackedSequence):
        assert value.batch_sizes.device.type == "cpu"
        kept = (value.batch_sizes, value.sorted_indices, value.unsorted_indices)
        return [value.data, *(each for each in kept if each is not None)]
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in tensors(v)]


def close(ours: Any, theirs: Any) -> None:  # noqa: ANN401
    first, second = tensors(ours), tensors(theirs)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def same_training(
    digital: nn.Module,
    analog: AnalogRNNBase,
    x: torch.Tensor | PackedSequence,
    hx: Any = None,  # noqa: ANN401
) -> None:
    """Outputs, states, gradients of x and of the first states, and two steps of training agree."""
    kept: list[list[Any]] = []
    before = analog.get_weights()
    for layer, make in ((digital, torch.optim.SGD), (analog, AnalogSGD)):
        optimizer = make(layer.parameters(), lr=0.1)
        seen: list[Any] = []
        for _ in range(2):
            optimizer.zero_grad()
            leaves: list[torch.Tensor] = []

            def leaf(value: Any) -> Any:  # noqa: ANN401
                if isinstance(value, PackedSequence):
                    return PackedSequence(leaf(value.data), *value[1:])
                if isinstance(value, tuple):
                    return tuple(leaf(each) for each in value)
                leaves.append(value.detach().clone().requires_grad_())  # noqa: B023
                return leaves[-1]  # noqa: B023

            given, first = leaf(x), None if hx is None else leaf(hx)
            y, last = layer(given, first)
            loss = sum(
                (t * torch.linspace(0.5, 1.5, t.numel(), device=t.device).reshape(t.shape)).sum()
                for t in tensors((y, last))
                if t.is_floating_point()
            )
            assert isinstance(loss, torch.Tensor)
            loss.backward()
            optimizer.step()
            seen += [y, last, *(each.grad for each in leaves)]
        kept.append(seen)
    close(kept[1], kept[0])
    for name, value in digital.state_dict().items():
        torch.testing.assert_close(analog.get_weights()[name], value, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(value, before[name], rtol=1e-3, atol=1e-4)


def states(kind: type[AnalogRNNBase], *shape: int) -> Any:  # noqa: ANN401
    h = torch.randn(*shape, device=DEVICE)
    return (h, torch.randn(*shape[:-1], 4, device=DEVICE)) if kind is AnalogLSTM else h


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({"bias": False}, 1),
        ({"digital_bias": False}, 1),
        ({"batch_first": True, "num_layers": 2}, 2),
        ({"bidirectional": True}, 2),
        ({"num_layers": 3, "bidirectional": True, "digital_bias": False}, 6),
    ],
)
@pytest.mark.parametrize("with_state", [False, True])
def test_a_layer_trains_as_that_of_torch(
    kind: type[AnalogRNNBase], options: dict[str, Any], count: int, with_state: bool
) -> None:
    digital, analog = pair(kind, **options)
    x = torch.randn(5, 2, 3, device=DEVICE)
    batch = 5 if options.get("batch_first") else 2
    same_training(digital, analog, x, states(kind, count, batch, 4) if with_state else None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_state", [False, True])
def test_one_sequence_needs_no_batch(kind: type[AnalogRNNBase], with_state: bool) -> None:
    digital, analog = pair(kind, bidirectional=True, batch_first=True)
    hx = states(kind, 2, 4) if with_state else None
    same_training(digital, analog, torch.randn(5, 3, device=DEVICE), hx)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[5, 3, 3, 1], [1, 4, 2, 5], [3, 3], [2]])
@pytest.mark.parametrize("with_state", [False, True])
def test_packed_sequences_go_in_and_out(
    kind: type[AnalogRNNBase], lengths: list[int], with_state: bool
) -> None:
    digital, analog = pair(kind, num_layers=2, bidirectional=True)
    packed = pack_sequence(
        [torch.randn(length, 3, device=DEVICE) for length in lengths], enforce_sorted=False
    )
    hx = states(kind, 4, len(lengths), 4) if with_state else None
    same_training(digital, analog, packed, hx)


def test_sorted_sequences_need_no_indices() -> None:
    digital, analog = pair(AnalogLSTM, batch_first=True)
    x = torch.randn(3, 4, 3, device=DEVICE)
    same_training(digital, analog, pack_padded_sequence(x, [4, 2, 1], batch_first=True))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("with_state", [False, True])
def test_an_lstm_may_project_its_outputs(with_state: bool) -> None:
    digital, analog = pair(AnalogLSTM, num_layers=2, bidirectional=True, proj_size=2)
    hx = states(AnalogLSTM, 4, 3, 2) if with_state else None
    same_training(digital, analog, torch.randn(5, 3, 3, device=DEVICE), hx)
    assert analog.weight_hr_l1_reverse.shape == (2, 4)


def test_an_rnn_may_have_relu_where_torch_has_its_place() -> None:
    torch.manual_seed(0)
    digital = nn.RNN(3, 4, 2, "relu")
    analog = AnalogRNN(3, 4, 2, "relu", config=IDEAL)
    analog.set_weights(digital.state_dict())
    same_training(digital, analog, torch.randn(5, 2, 3))


def test_dropout_acts_between_layers_in_training_alone() -> None:
    digital, analog = pair(AnalogGRU, num_layers=2, dropout=0.5)
    x = torch.randn(50, 20, 3, device=DEVICE)
    close(analog.eval()(x), digital.eval()(x))
    analog.train()
    first, second = analog(x)[0], analog(x)[0]
    assert not torch.equal(first, second)
    digital, analog = pair(AnalogGRU, num_layers=2, dropout=1.0)
    close(analog(x), digital(x))


# Tiles, samples, names


def test_each_step_is_a_sample_of_one_mini_batch() -> None:
    layer = AnalogLSTM(3, 4, config=pl.SingleConfig(), seed=1)
    optimizer = AnalogSGD(layer.parameters(), lr=0.1)
    before = layer.weight_hh_l0.clone()
    layer(torch.randn(7, 2, 3))[0].sum().backward()
    optimizer.step()
    for part in (layer.ih_l0, layer.hh_l0):
        (tile,) = part.tiles
        assert tile.counters["forward_samples"] == 14
        assert tile.counters["update_samples"] == 14
        assert tile.counters["mini_batches"] == 1
    assert not torch.equal(layer.weight_hh_l0, before)


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_those_of_torch(kind: type[AnalogRNNBase]) -> None:
    digital, analog = pair(kind, num_layers=2, bidirectional=True)
    assert set(analog.get_weights()) == set(digital.state_dict())
    for name, value in digital.state_dict().items():
        assert torch.equal(getattr(analog, name), value)
    biases = {name for name, _ in analog.named_parameters() if "bias" in name}
    assert biases == {name for name in digital.state_dict() if "bias" in name}
    analog.flatten_parameters()
    with pytest.raises(AttributeError, match="set_weights"):
        analog.weight_hh_l0 = nn.Parameter(torch.zeros(1))
    with pytest.raises(RuntimeError, match="does not reach"):
        nn.init.orthogonal_(analog.weight_hh_l0)


def test_a_saved_state_goes_on_to_the_bit() -> None:
    layers = [AnalogGRU(3, 4, 2, config=pl.SingleConfig(), seed=seed) for seed in (1, 2)]
    layers.append(copy.deepcopy(layers[0]))
    layers[1].load_state_dict(layers[0].state_dict())
    torch.manual_seed(0)
    x = torch.randn(3, 2, 3)
    for layer in layers:
        optimizer = AnalogSGD(layer.parameters(), lr=0.1)
        layer(x)[0].sum().backward()
        optimizer.step()
    for other in layers[1:]:
        for name, value in layers[0].get_weights().items():
            assert torch.equal(other.get_weights()[name], value)


def test_seeds_settle_everything_and_tiles_have_numbers_of_their_own() -> None:
    torch.manual_seed(5)
    one = AnalogLSTM(6, 3, 2, max_input_size=3, max_output_size=0)
    torch.manual_seed(5)
    other = AnalogLSTM(6, 3, 2, max_input_size=3, max_output_size=0)
    for name, value in one.get_weights().items():
        assert torch.equal(other.get_weights()[name], value)
        assert value.abs().max() <= 3**-0.5
    parts = [one.ih_l0, one.hh_l0, one.ih_l1, one.hh_l1]
    assert [tile.tile_id for part in parts for tile in part.tiles] == list(range(5))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_types_are_those_of_torch(kind: torch.dtype) -> None:
    _, analog = pair(AnalogLSTM)
    x = torch.randn(4, 2, 3, device=DEVICE, dtype=kind)
    assert {t.dtype for t in tensors(analog.to(kind)(x))} == {kind}
    _, analog = pair(AnalogLSTM)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y, _ = analog(x.float())
        assert y.dtype == torch.bfloat16
    y.float().sum().backward()


# Arguments


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [{"hidden_size": 0}, {"num_layers": 0}, {"dropout": 1.5}, {"dropout": "0.1"}],
)
def test_settings_that_torch_refuses_are_refused_in_its_words(
    kind: type[AnalogRNNBase], options: dict[str, Any]
) -> None:
    arguments = {"input_size": 3, "hidden_size": 4} | options
    with pytest.raises(ValueError) as theirs:  # noqa: PT011 - its words are compared
        TWINS[kind](**arguments)
    with pytest.raises(ValueError) as ours:  # noqa: PT011
        kind(**arguments)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: AnalogLSTM(3, 4)(torch.ones(2, 5)), ValueError, r"\[2, 5\]: give \[steps, m, 3\]"),
        (lambda: AnalogLSTM(3, 4)(torch.ones(0, 3)), ValueError, "with at least one step"),
        (
            lambda: AnalogLSTM(3, 4)(torch.ones(2, 1, 3), torch.zeros(1, 1, 4)),
            ValueError,
            r"hx has shapes \[\[1, 1, 4\]\]: give \[\[1, 1, 4\], \[1, 1, 4\]\], in a tuple",
        ),
        (lambda: AnalogGRU(3, 4)(torch.ones(2, 3), torch.zeros(2, 4)), ValueError,
         r"give \[\[1, 4\]\]"),
        (lambda: AnalogLSTM(3, 4, rpu_config=1), TypeError, "'rpu_config'; it is called config"),
        (lambda: AnalogLSTM(3, 4, bias=2), TypeError, "bias = 2: write True or False"),
        (lambda: AnalogGRU(3, 4, nonlinearity="relu"), TypeError, "no argument 'nonlinearity'"),
        (lambda: AnalogGRU(3, 4, proj_size=2), TypeError,
         "AnalogGRU has no argument 'proj_size'; AnalogLSTM has"),
        (lambda: AnalogLSTM(3, 4).load_state_dict(torch.nn.LSTM(3, 4).state_dict(), strict=False),
         RuntimeError,
         r"weight_ih_l0 is of a digital layer.*set_weights\(digital\.state_dict\(\)\)"),
        (lambda: AnalogRNNBase(3, 4), TypeError, "make an AnalogLSTM"),
        (lambda: AnalogGRU(3, 4).set_weights({}), ValueError,
         r"weights has \[\]: give \['bias_hh_l0'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_explained(
    call: Any,  # noqa: ANN401
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_weights_of_a_wrong_shape_change_nothing() -> None:
    digital, analog = pair(AnalogGRU)
    before = analog.get_weights()
    wrong = {name: value + 1.0 for name, value in digital.state_dict().items()}
    wrong["bias_hh_l0"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"bias_hh_l0 has shape \[3\]; expected \[12\]"):
        analog.set_weights(wrong)
    for name, value in before.items():
        assert torch.equal(analog.get_weights()[name], value)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_layer_trains_to_the_bit() -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 2, 3)
    weights = []
    for compiled in (True, False):
        layer = AnalogLSTM(3, 4, seed=1)
        optimizer = AnalogSGD(layer.parameters(), lr=0.1)
        run = torch.compile(layer, backend="eager") if compiled else layer
        run(x)[0].square().sum().backward()
        optimizer.step()
        weights.append(layer.weight_hh_l0)
    assert torch.equal(*weights)


def test_a_checkpointed_layer_reads_again_what_it_read() -> None:
    x = torch.randn(4, 2, 3)
    weights = []
    for again in (True, False):
        layer = AnalogGRU(3, 4, seed=1)
        optimizer = AnalogSGD(layer.parameters(), lr=0.1)
        given = x.clone().requires_grad_()
        y = (
            checkpoint(layer, given, use_reentrant=False, context_fn=replayed_reads)
            if again
            else layer(given)
        )
        y[0].square().sum().backward()
        optimizer.step()
        weights.append(layer.weight_hh_l0)
    assert torch.equal(*weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
def test_all_weights_are_listed_as_torch_does(kind: type[AnalogRNNBase], bias: bool) -> None:
    options = {"proj_size": 2} if kind is AnalogLSTM else {}
    digital, analog = pair(kind, num_layers=2, bidirectional=True, bias=bias, **options)
    assert isinstance(digital, nn.RNNBase)
    listed, wanted = analog.all_weights, digital.all_weights
    assert [len(each) for each in listed] == [len(each) for each in wanted]
    for ours, theirs in zip(listed, wanted, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.as_subclass(torch.Tensor), other, rtol=1e-6, atol=1e-6)


def test_an_lstm_takes_its_projection_by_place_as_torch_does() -> None:
    places = (3, 4, 1, True, True, 0.0, False, 2)
    assert nn.LSTM(*places).proj_size == 2
    layer = AnalogLSTM(*places, seed=1)
    assert layer.proj_size == 2
    assert layer.batch_first
    with pytest.raises(TypeError):
        AnalogLSTM(*places, 1)
    with pytest.raises(TypeError):
        AnalogGRU(*places)
