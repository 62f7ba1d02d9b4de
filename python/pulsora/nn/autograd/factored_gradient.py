"""The gradient of weights in tiles, kept as the factors of the pulsed update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from pulsora.nn.tiles.factor_pairs import Pair
from pulsora.nn.tiles.patches import as_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from typing_extensions import Self

    from pulsora.nn.tiles.factor_pairs import Factors

__all__ = ["AnalogGradient", "bias_gradient", "checked"]

_aten: Any = torch.ops.aten
_COMMUNICATES = {"c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd"}


class AnalogGradient(torch.Tensor):
    """The gradient sum(d^T x) of weights [out_features, in_features], kept as its factors.

    An `AnalogParameter` has this gradient in `.grad`. It is made, summed and dropped like any
    gradient of torch: by `backward()`, and by `zero_grad()` of a module or an optimiser.
    Multiplying it in place scales d, which is all that clipping by norm and `GradScaler` need.
    Other operations that read the gradient (a norm, a plot) get the product, formed anew each time.
    Other operations that write to it raise a RuntimeError, because pulses are made of the factors.
    """

    factors: Factors
    """The pairs, shared with `.data` and `detach()` as torch's tensors share memory."""

    @staticmethod
    def __new__(
        cls: type[Self], factors: Factors, shape: Sequence[int], device: torch.device
    ) -> Self:
        """Makes a tensor without memory of its own, on the device of the factors."""
        made: Self = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001 - documented by torch
            cls, torch.Size(shape), dtype=torch.float32, device=device
        )
        made.factors = factors
        return made

    __torch_function__ = (
        torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001
    )

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The factors.

        Raises:
            RuntimeError: if some were dropped, or have been written to since the backward pass.
        """
        pairs = self.factors.pairs
        if pairs is None:
            raise RuntimeError(self.factors.lost)
        for x, d, versions, _ in pairs:
            if (x._version, d._version) != versions:  # noqa: SLF001
                raise RuntimeError(
                    "the input of an analog layer, or the gradient at its output, was changed in "
                    "place after the backward pass, but pulses are made of it; write into another "
                    "tensor, or clone() the input"
                )
        return pairs

    def scaled(self, factor: Tensor | float) -> AnalogGradient:
        """The gradient times a number.

        Raises:
            RuntimeError: if the update reuses reads of d.
        """
        if self.factors.is_fixed:
            raise RuntimeError(
                "the gradient of a tile with projection = 'reuse' cannot be scaled (clipping, "
                "GradScaler, maximize), because the update reuses reads of it as it was; choose "
                "projection = 'analog' or 'exact'"
            )
        return self._with(tuple(pair.scaled(factor) for pair in self.pairs))

    def dense(self) -> Tensor:
        """The product [out_features, in_features], formed now."""
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            total = torch.zeros(self.shape, device=self.device)
            for inputs, d, *_ in self.pairs:
                x = as_matrix(inputs)
                groups = x.shape[1] // self.shape[1]
                blocks = zip(
                    total.chunk(groups), d.chunk(groups, 1), x.chunk(groups, 1), strict=True
                )
                for block, d_block, x_block in blocks:
                    block.addmm_(d_block.T, x_block)
        return total

    def numpy(self, *, force: bool = False) -> NDArray[np.float32]:
        """The product, as an array of NumPy."""
        formed: NDArray[np.float32] = self.dense().numpy(force=force)
        return formed

    def moved(self, device: torch.device) -> AnalogGradient:
        """This gradient on another device."""
        pairs = None if self.factors.pairs is None else self.pairs
        if pairs is not None:
            pairs = tuple(
                Pair.of(x.to(device), d.to(device), None if gate is None else gate.to(device))
                for x, d, _, gate in pairs
            )
        return AnalogGradient(self.factors.replaced(pairs), self.shape, device)

    def _sharing(self) -> AnalogGradient:
        return AnalogGradient(self.factors, self.shape, self.device)

    def _with(self, pairs: tuple[Pair, ...] | None) -> AnalogGradient:
        return AnalogGradient(self.factors.replaced(pairs), self.shape, self.device)

    def _plus(self, other: AnalogGradient) -> tuple[Pair, ...] | None:
        mine, more = self.factors.pairs, other.factors.pairs
        self.factors.lost = self.factors.lost or other.factors.lost
        return None if mine is None or more is None else mine + more

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # no class method in torch
        cls,
        func: Any,  # noqa: ANN401 - torch gives no type
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        settings = kwargs or {}
        rule = _RULES.get(func)
        result = rule(*args, **settings) if rule else NotImplemented
        if result is not NotImplemented:
            return result
        _require_unwritten(func, args, settings)
        return func(*tree_map(_formed, args), **tree_map(_formed, settings))

    def __repr__(self) -> str:  # type: ignore[override]
        pairs = self.factors.pairs
        kept = "dropped" if pairs is None else f"{len(pairs)} pairs (x, d)"
        return f"AnalogGradient(shape={list(self.shape)}, device='{self.device}', {kept})"


def checked(gradient: Tensor) -> AnalogGradient:
    """Returns the gradient of a parameter; RuntimeError if it is not what `backward()` left."""
    if not isinstance(gradient, AnalogGradient):
        raise RuntimeError(  # noqa: TRY004 - no argument has this type
            "the gradient has been replaced by another tensor, but pulses are made "
            "of its factors; scale it as a whole (hooks may return grad * number), or leave it"
        )
    return gradient


def bias_gradient(d: Tensor, bias: Tensor) -> Tensor:
    """Returns the gradient of a bias, from the output gradients d [m, out_features] of a read."""
    made = d.sum(0)
    return made if made.dtype == bias.dtype else made.to(bias.dtype)


def _formed(value: object) -> object:
    return value.dense() if isinstance(value, AnalogGradient) else value


def _require_unwritten(
    func: Any,  # noqa: ANN401
    args: tuple[Any, ...],
    settings: dict[str, Any],
) -> None:
    """Raises RuntimeError if the operation would write to a gradient, or send it to processes."""
    if func.namespace in _COMMUNICATES:
        raise RuntimeError(
            f"{func.overloadpacket.__name__} of torch.distributed was given the gradient of an "
            "analog layer, which has no memory to send: pulses are made of its factors x and d. "
            "pulsora.distributed.prepare(model) makes several processes train one model"
        )
    for position, spec in enumerate(func._schema.arguments):  # noqa: SLF001
        value = args[position] if position < len(args) else settings.get(spec.name)
        if spec.alias_info is None or not spec.alias_info.is_write:
            continue
        if any(isinstance(leaf, AnalogGradient) for leaf in tree_flatten(value)[0]):
            name = func.overloadpacket.__name__
            raise RuntimeError(
                f"{name} would change single elements of the gradient of an analog layer, but "
                "pulses are made of its factors x and d; it can be scaled as a whole "
                "(torch.nn.utils.clip_grad_norm_ instead of clip_grad_value_)"
            )


def _is_number(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and not isinstance(value, AnalogGradient)
    return isinstance(value, int | float)


def _view(self: AnalogGradient, **_: object) -> AnalogGradient:
    return self._sharing()


def _clone(self: AnalogGradient, **_: object) -> AnalogGradient:
    return self._with(self.factors.pairs)


def _empty_like(
    self: AnalogGradient,
    size: Sequence[int],
    *_: object,
    **__: object,
) -> Any:  # noqa: ANN401
    return self._with(()) if tuple(size) == tuple(self.shape) else NotImplemented


def _copy(self: object, other: object, *_: object) -> Any:  # noqa: ANN401
    if not isinstance(self, AnalogGradient) or not isinstance(other, AnalogGradient):
        return NotImplemented
    self.factors.take(other.factors)
    return self


def _zero(self: AnalogGradient) -> AnalogGradient:
    self.factors.clear()
    return self


def _add(self: object, other: object, *, alpha: float = 1) -> Any:  # noqa: ANN401
    if not isinstance(self, AnalogGradient) or not isinstance(other, AnalogGradient) or alpha != 1:
        return NotImplemented
    return self._with(self._plus(other))


def _add_to(self: object, other: object, *, alpha: float = 1) -> Any:  # noqa: ANN401
    if not isinstance(self, AnalogGradient) or not isinstance(other, AnalogGradient) or alpha != 1:
        return NotImplemented
    self.factors.pairs = self._plus(other)
    return self


def _multiply(self: object, factor: object) -> Any:  # noqa: ANN401
    gradient, number = (self, factor) if isinstance(self, AnalogGradient) else (factor, self)
    if not isinstance(gradient, AnalogGradient) or not _is_number(number):
        return NotImplemented
    return gradient.scaled(number)  # type: ignore[arg-type]


def _multiply_into(self: object, factor: object) -> Any:  # noqa: ANN401
    if not isinstance(self, AnalogGradient) or not _is_number(factor):
        return NotImplemented
    self.factors.pairs = self.scaled(factor).pairs  # type: ignore[arg-type]
    return self


def _divide(self: object, divisor: Any) -> Any:  # noqa: ANN401
    return _multiply(self, 1 / divisor) if _is_number(divisor) else NotImplemented


def _divide_into(self: object, divisor: Any) -> Any:  # noqa: ANN401
    return _multiply_into(self, 1 / divisor) if _is_number(divisor) else NotImplemented


def _unscale(gradients: Sequence[Tensor], found_inf: Tensor, factor: Tensor) -> None:
    """Unscales for `GradScaler`, and looks for non-finite values, without waiting for a GPU."""
    plain = [gradient for gradient in gradients if not isinstance(gradient, AnalogGradient)]
    if plain:
        torch._amp_foreach_non_finite_check_and_unscale_(plain, found_inf, factor)
    for gradient in gradients:
        if isinstance(gradient, AnalogGradient):
            for x, d, *_ in gradient.pairs:
                is_bad = ~(as_matrix(x).isfinite().all() & d.isfinite().all())
                found_inf.copy_(torch.maximum(found_inf, is_bad.to(found_inf)))
            _multiply_into(gradient, factor)


def _each(rule: Callable[..., Any]) -> Callable[..., None]:
    """Makes a rule for lists of tensors, in which plain tensors get torch's own operation."""
    plain = {_zero: "zero_", _multiply_into: "mul_", _divide_into: "div_"}[rule]

    def apply(gradients: Sequence[Tensor], *rest: object) -> None:
        for gradient in gradients:
            if not isinstance(gradient, AnalogGradient):
                getattr(gradient, plain)(*rest)
            elif rule(gradient, *rest) is NotImplemented:
                raise RuntimeError(f"the gradient of an analog layer cannot be given to {plain}")

    return apply


_RULES: dict[Any, Callable[..., Any]] = {
    _aten.detach.default: _view,
    _aten.alias.default: _view,
    _aten.clone.default: _clone,
    _aten.new_empty_strided.default: _empty_like,
    _aten.copy_.default: _copy,
    _aten.zero_.default: _zero,
    _aten.add.Tensor: _add,
    _aten.add_.Tensor: _add_to,
    _aten.mul.Tensor: _multiply,
    _aten.mul_.Tensor: _multiply_into,
    _aten.div.Tensor: _divide,
    _aten.div_.Tensor: _divide_into,
    _aten.neg.default: lambda gradient: gradient.scaled(-1.0),
    _aten._foreach_zero_.default: _each(_zero),
    _aten._foreach_mul_.Scalar: _each(_multiply_into),
    _aten._foreach_mul_.Tensor: _each(_multiply_into),
    _aten._foreach_div_.Scalar: _each(_divide_into),
    _aten._foreach_div_.Tensor: _each(_divide_into),
    _aten._amp_foreach_non_finite_check_and_unscale_.default: _unscale,
}
