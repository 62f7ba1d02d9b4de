"""Reports, for each layer of a model, whether it is analog and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy

from pulsora._internal.modules import require_module
from pulsora._internal.text_tables import aligned
from pulsora.nn import AnalogModule, AnalogRNNBase, GatedAdapter
from pulsora.nn.gates import Gate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "TWINS",
    "ConversionReport",
    "LayerReport",
    "analog_parts",
    "besides",
    "choice",
    "conversion_report",
    "is_conv1d",
    "mark_as_chosen",
    "named_analog_parts",
    "own_forward",
    "state_hooks",
    "tables",
    "why_digital",
]

_CHOSEN = "_pulsora_left_digital"  # why the user left a layer digital

TWINS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNN, nn.LSTM, nn.GRU)
"""Layers of torch that have an analog twin; not their subclasses."""

_TABLES = (nn.Embedding, nn.EmbeddingBag)
_REASONS: list[tuple[type[nn.Module] | tuple[type[nn.Module], ...], str]] = [
    (nn.MultiheadAttention, "computes its products itself, without calling layers"),
    (NonDynamicallyQuantizableLinear, "MultiheadAttention takes its weight without calling it"),
    (nn.RNNCellBase, "recurrent cells have no analog twin; RNN, LSTM and GRU have one"),
    (
        nn.modules.conv._ConvTransposeNd,  # noqa: SLF001
        "transposed convolutions have no analog twin",
    ),
    (nn.Bilinear, "has no analog twin"),
    (nn.modules.batchnorm._NormBase, ""),  # noqa: SLF001 - a lazy one, whose shape is unknown
    (_TABLES, "a table, of which rows are looked up; no product"),
    (TWINS, "is a subclass of a layer of torch and may compute something else; see conversions="),
]
_COMPUTED = (
    "its weight or bias is computed from other parameters (weight_norm, pruning), or is in it twice"
)
_STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_ADAPTER = "factors of a low-rank adapter in tensors of torch; the layer it adapts is its base"
_GATE = "weights for the components of an adapter"
_COMPILED = "compiled by torch.jit; for tiles, put the module that was compiled in its place"
_LAZY = (
    "a lazy layer, which has no weights before its first forward pass; call the model on an input "
    "once, then convert it"
)
_OWN_CLASS = "a class with parameters of its own, which has no analog twin; see conversions="


@dataclass(frozen=True)
class LayerReport:
    """One layer that holds matrices.

    Attributes:
        name: Its name in `model.named_modules()`.
        layer: Its class.
        is_analog: Whether its matrix is on tiles.
        detail: The configuration of an analog layer, or why a layer is digital.
        is_surprising: Whether the layer is digital although the user did not choose that.
    """

    name: str
    layer: str
    is_analog: bool
    detail: str
    is_surprising: bool


class ConversionReport(tuple[LayerReport, ...]):
    """The layers of a model that hold matrices, in order; `print` shows a table."""

    __slots__ = ()

    @property
    def analog(self) -> list[str]:
        """Names of the analog layers."""
        return [row.name for row in self if row.is_analog]

    @property
    def digital(self) -> dict[str, str]:
        """Names of the layers that are digital, and why."""
        return {row.name: row.detail for row in self if not row.is_analog}

    def __repr__(self) -> str:
        rows = [("layer", "class", "is", "configuration, or why it is digital")]
        rows += [
            (row.name or "(model)", row.layer, "analog" if row.is_analog else "digital", row.detail)
            for row in self
        ]
        return aligned(rows)

    __str__ = __repr__


def conversion_report(model: nn.Module) -> ConversionReport:
    """Reports which layers of a model are analog, which are digital, and why.

    Layers without a matrix (activations, normalisation) do not occur.

        model = pulsora.convert_to_analog(model, config)
        print(pulsora.conversion_report(model))
    """
    require_module(model)
    rows = []
    whole: list[str] = []  # starts of the names of what is inside layers that are one row
    of_tables = tables(model)
    for name, layer in model.named_modules():
        if whole and name.startswith(whole[-1]):
            continue
        if isinstance(layer, AnalogRNNBase | ScriptModule):
            whole.append(f"{name}." if name else "")
        if isinstance(layer, AnalogModule | AnalogRNNBase):
            parts = list(analog_parts(layer))
            shapes = ", ".join(str(list(part.tiles.shape)) for part in parts)
            is_analog, is_surprising = True, False
            detail = f"{shapes}, {parts[0].config.summary()}"
        else:
            is_analog = False
            detail, is_surprising = _why(layer, of_tables)
        if detail:
            kind = type(layer).__name__
            rows.append(LayerReport(name, kind, is_analog, detail, is_surprising))
    return ConversionReport(rows)


def analog_parts(layer: nn.Module) -> Iterator[AnalogModule]:
    """Yields the analog modules of a layer: the layer itself, or its submodules."""
    return (part for part in layer.modules() if isinstance(part, AnalogModule))


def named_analog_parts(model: nn.Module) -> Iterator[tuple[str, AnalogModule]]:
    """Yields the analog modules of a model with their names."""
    return (each for each in model.named_modules() if isinstance(each[1], AnalogModule))


def mark_as_chosen(layer: nn.Module, reason: str) -> None:
    """Marks a layer as digital by the user's choice; an empty reason removes the mark."""
    setattr(layer, _CHOSEN, reason)


def choice(layer: nn.Module) -> str:
    """Returns why the user left a layer digital; empty if the user did not."""
    return str(getattr(layer, _CHOSEN, ""))


def why_digital(layer: nn.Module) -> str:
    """Returns why a layer has no analog twin; empty if it has one, or holds no matrix."""
    own = dict(layer.named_parameters(recurse=False))
    if isinstance(layer, ScriptModule):
        reason = _COMPILED if any(each.ndim > 1 for each in layer.parameters()) else ""
    elif type(layer) in TWINS:
        names = getattr(layer, "_flat_weights_names", ["weight"])
        bias = getattr(layer, "bias", None)  # of recurrent layers a boolean
        is_whole = set(names) <= set(own) and ("bias" in own or not isinstance(bias, Tensor))
        reason = "" if is_whole else _COMPUTED
        reason = reason or _not_real(own[names[0]]) or state_hooks(layer) or besides(layer)
    elif is_conv1d(layer):
        reason = besides(layer)
    elif isinstance(layer, LazyModuleMixin) and layer.cls_to_become in TWINS:
        reason = _LAZY
    else:
        known = (why for kinds, why in _REASONS if isinstance(layer, kinds))
        has_matrix = any(_is_matrix(parameter) for parameter in own.values())
        reason = next(known, _OWN_CLASS if has_matrix else "")
    return reason


def besides(layer: nn.Module) -> str:
    """Returns why a layer that has more than weights and biases stays digital; else empty."""
    own = getattr(layer, "_flat_weights_names", ("weight", "bias"))
    tables_of: dict[str, Iterable[str]] = {
        "parameter": layer._parameters,  # noqa: SLF001 - names that are None or occur twice too
        "buffer": layer._buffers,  # noqa: SLF001
        "module": layer._modules,  # noqa: SLF001
    }
    more = [
        f"the {kind} '{name}'"
        for kind, names in tables_of.items()
        for name in names
        if name not in own
    ]
    if not more:
        return ""
    return f"has {', '.join(more)}, which its analog twin would lack; see conversions="


def own_forward(layer: nn.Module) -> str:
    """Returns why a layer that has a forward of its own stays digital; empty if it has none."""
    if "forward" in vars(layer):
        return "its forward was replaced by another, which no analog layer has"
    return ""


def is_conv1d(layer: nn.Module) -> bool:
    """Whether a layer is the Conv1D of transformers, by name; its weight is [inputs, outputs]."""
    own = dict(layer.named_parameters(recurse=False))
    return (
        type(layer).__name__ == "Conv1D"
        and set(own) >= {"weight", "bias"}
        and tuple(own["weight"].shape[1:])
        == tuple(own["bias"].shape)
        == (getattr(layer, "nf", -1),)
    )


def tables(model: nn.Module) -> dict[Tensor, str]:
    """Returns the weights of the embedding layers of a model, with the names of the layers."""
    return {
        layer.weight: name for name, layer in model.named_modules() if isinstance(layer, _TABLES)
    }


def _not_real(weight: Tensor) -> str:
    """Returns why a layer with weights of another type than real numbers stays digital."""
    if weight.is_floating_point():
        return ""
    return f"its weight is {weight.dtype}, and cells hold real numbers"


def state_hooks(layer: nn.Module) -> str:
    """Returns why a layer with hooks on its state_dict stays digital; empty without hooks."""
    hooks = [name for name in _STATE_HOOKS if getattr(layer, name, None)]
    if not hooks:
        return ""
    return f"has hooks on its state_dict ({', '.join(hooks)}), which has other names"


def _why(layer: nn.Module, of_tables: Mapping[Tensor, str]) -> tuple[str, bool]:
    """Returns why a layer is digital, and whether that may surprise the user."""
    if isinstance(layer, GatedAdapter | Gate):
        reason = _ADAPTER if isinstance(layer, GatedAdapter) else _GATE
        has_matrix = any(_is_matrix(each) for each in layer.parameters(recurse=False))
        return reason if has_matrix else "", False
    if chosen := choice(layer):
        return chosen, False
    is_compiled = isinstance(layer, ScriptModule)  # whose parameters are in no dictionary
    weight = None if is_compiled else layer._parameters.get("weight")  # noqa: SLF001
    table = None if weight is None else of_tables.get(weight)
    if table is not None and not isinstance(layer, _TABLES):
        return f"its weight is the table '{table}', too; see untie=", True
    reason = why_digital(layer)
    if reason or not (type(layer) in TWINS or is_conv1d(layer)):
        return reason, bool(reason) and not isinstance(layer, _TABLES)
    reason = own_forward(layer)
    return reason or "not converted", bool(reason)


def _is_matrix(parameter: Any) -> bool:  # noqa: ANN401 - lazy ones have no shape
    return is_lazy(parameter) or parameter.ndim == 2
