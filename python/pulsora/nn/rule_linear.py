"""A fully connected layer whose arrays follow a rule written in Python."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from pulsora.nn.autograd.differentiation import differentiable_once
from pulsora.nn.inputs import output_type, require_input
from pulsora.prototype import Rule
from pulsora.state import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = ["RuleLinear"]

_SAME = 1e-3  # relative deviation of a gradient from a multiple of what backward() left


class _Product(torch.autograd.Function):
    """y = W x by the reads of a rule; keeps x and d of the backward pass for the step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _weight: Tensor, layer: RuleLinear) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x)
        ctx.layer = layer
        evaluation = not (layer.training and any(ctx.needs_input_grad))
        return torch.from_numpy(layer.rule.forward(x.detach().numpy(), evaluation=evaluation))

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (x,) = ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        d = d.detach().float().contiguous()
        dx = torch.from_numpy(ctx.layer.rule.backward(d.numpy())) if needs_x else None
        return dx, ctx.layer.kept(x, d) if needs_weight else None, None


class RuleLinear(nn.Module):
    """`torch.nn.Linear` on the arrays of a `pulsora.prototype.Rule`, on the CPU.

    Reads are the rule's. The step of any optimiser that has `weight` calls `rule.update` with the
    inputs and gradients of the backward passes since the last step, and the lr of the group; what
    else the optimiser does to `weight` is dropped. Gradients may be clipped, unscaled and
    accumulated, which multiplies them as a whole. `state_dict()` holds the complete state of the
    rule, as tensors `rule.*`.

    Args:
        rule: The rule, which has the sizes of the layer.
        bias: Whether a digital bias is added.

    Attributes:
        rule: The rule.
        weight: What perfect reads see [out_features, in_features], renewed after each step. Write
            weights by `set_weights`.
        bias: The bias [out_features], or None.

    Raises:
        TypeError: If `rule` is no `Rule`.
    """

    bias: nn.Parameter | None

    def __init__(self, rule: Rule, bias: bool = True) -> None:
        super().__init__()
        if not isinstance(rule, Rule):
            raise TypeError(
                f"rule is of type {type(rule).__name__}; give a pulsora.prototype.Rule, which has "
                "the sizes of the layer"
            )
        self.rule = rule
        self.in_features, self.out_features = rule.x_size, rule.d_size
        self.weight = nn.Parameter(torch.empty(rule.d_size, rule.x_size))
        self.register_parameter("bias", nn.Parameter(torch.empty(rule.d_size)) if bias else None)
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._pass = -1  # the backward pass that left the first pair
        _layers.add(self)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws weight and bias from torch's generator as torch's layer does, and writes them."""
        bound = self.in_features**-0.5
        bias = None if self.bias is None else torch.empty_like(self.bias).uniform_(-bound, bound)
        self.set_weights(torch.empty_like(self.weight).uniform_(-bound, bound), bias)

    @torch.no_grad()
    def set_weights(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Writes weights [out_features, in_features] by `rule.weights`, and the bias, if any.

        Raises:
            ValueError: For a wrong shape, values that are not finite, and a bias that is missing or
                that the layer does not have; nothing has changed then.
        """
        if (bias is None) != (self.bias is None):
            size = self.out_features
            raise ValueError(
                f"bias is None, but this layer has one: give a tensor of shape [{size}]"
                if bias is None
                else "bias was given, but this layer has none: leave it out"
            )
        if bias is not None and bias.shape != (self.out_features,):
            raise ValueError(f"bias has shape {list(bias.shape)}; expected [{self.out_features}]")
        self.rule.weights = weight.detach().float().cpu().numpy()
        if self.bias is not None and bias is not None:
            self.bias.copy_(bias)
        self._show()

    def forward(self, x: Tensor) -> Tensor:
        """Returns y [..., out_features] = W x + bias for x [..., in_features]."""
        if self.weight.device.type != "cpu":
            raise RuntimeError(
                f"the layer is on {self.weight.device}, but rules in Python run on the CPU: call "
                "layer.cpu()"
            )
        require_input(x, self.in_features, torch.device("cpu"))
        flat = x.reshape(-1, self.in_features).float()
        y: Tensor = _Product.apply(flat, self.weight, self)  # type: ignore[no-untyped-call]
        y = y if self.bias is None else y + self.bias
        return y.to(output_type(x)).reshape(*x.shape[:-1], self.out_features)

    def kept(self, x: Tensor, d: Tensor) -> Tensor:
        """Keeps inputs x [m, in_features] and gradients d [m, out_features] for the next step.

        Returns the gradient d^T x of the weight.
        """
        current = torch._C._current_graph_task_id()  # noqa: SLF001 - of this backward pass
        given = self.weight.grad
        if self._pairs and self._pass != current and (given is None or not bool(given.any())):
            self._pairs = []  # their gradient has been cleared
        if not self._pairs or given is None:
            self._pass = current
        self._pairs.append((x.detach().clone(), d))
        return d.T @ x

    @torch.no_grad()
    def make_step(self, lr: float) -> None:
        """Updates the rule by the backward passes since the last step.

        Raises:
            RuntimeError: If the gradient is no multiple of what they left; nothing has changed
                then.
        """
        given, pairs = self.weight.grad, self._pairs
        if given is not None and pairs:
            left = torch.stack([d.T @ x for x, d in pairs]).double().sum(0)
            total = float((left * left).sum())
            factor = float((given.double() * left).sum()) / total if total else 1.0
            apart = float((given.double() - factor * left).abs().max())
            if apart > _SAME * max(abs(factor) * float(left.abs().max()), 1e-30):
                raise RuntimeError(
                    "the gradient of the weight is no multiple of what backward() left, but pulses "
                    "are made of inputs and gradients: scale it as a whole"
                )
            if abs(factor - 1.0) < _SAME * _SAME:
                factor = 1.0  # the rounding of a sum
            x, d = (torch.cat(parts) for parts in zip(*pairs, strict=True))
            self.rule.update(x.numpy(), (factor * d).numpy(), lr)
        self.weight.grad, self._pairs = None, []
        self._show()

    @torch.no_grad()
    def _show(self) -> None:
        self.weight.copy_(torch.tensor(self.rule.weights))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pairs": [], "_pass": -1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        _layers.add(self)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, values in self.rule.state().items():
            destination[f"{prefix}rule.{name}"] = torch.from_numpy(values)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        start = f"{prefix}rule."
        saved = {n.removeprefix(start): v for n, v in state_dict.items() if n.startswith(start)}
        rest = {n: v for n, v in state_dict.items() if not n.startswith(start)}
        if not saved:
            missing_keys.append(f"{start}*")
            return
        try:
            self.rule.load_state({name: tensor.numpy() for name, tensor in saved.items()})
        except StateError as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'the layer'}: {error}")
            return
        super()._load_from_state_dict(
            rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self.weight.grad, self._pairs = None, []
        self._show()

    def extra_repr(self) -> str:
        """Returns the arguments for `print(model)`."""
        return f"{self.rule!r}, bias={self.bias is not None}"


_layers: weakref.WeakSet[RuleLinear] = weakref.WeakSet()


def _step(optimizer: torch.optim.Optimizer, _arguments: object, _options: object) -> None:
    """Lets the layers of an optimiser make their steps after the optimiser's own."""
    if not _layers:
        return
    groups = {id(each): group for group in optimizer.param_groups for each in group["params"]}
    for layer in list(_layers):
        group = groups.get(id(layer.weight))
        if group is not None:
            lr = float(group["lr"])
            layer.make_step(-lr if group.get("maximize") else lr)


register_optimizer_step_post_hook(_step)
