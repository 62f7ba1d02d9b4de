"""Calls of an operator's kernel at once, where torch's dispatcher would do nothing but find it.

The way through the dispatcher to a kernel in Python takes the host as long as a small update itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["direct"]

# The dispatcher chooses by the keys of the operands and of the thread. With those of plain tensors in memory of
# a device, and those that every thread has, it comes to the kernel; any other (a mode, a transform of torch.func, a tracer, fake or
# sparse tensors, a subclass, a view that stands for negative values) has something to do before it.
_KEYS = torch._C.DispatchKey  # noqa: SLF001 - torch has no other way to ask


def _bits(*names: str) -> int:
    bits = 0
    for name in names:
        bits |= torch._C.DispatchKeySet(getattr(_KEYS, name)).raw_repr()  # noqa: SLF001
    return bits


_OTHERS = ~_bits(
    *("CPU", "AutogradCPU", "AutocastCPU"),
    *("CUDA", "AutogradCUDA", "AutocastCUDA"),
    "ADInplaceOrView",
)
_OTHERS_OF_THREAD = ~_bits("BackendSelect", "ADInplaceOrView")
_is_profiled = torch._C._autograd._profiler_enabled  # noqa: SLF001
_keys_of = torch._C._dispatch_keys  # noqa: SLF001
_keys_of_thread = torch._C._dispatch_tls_local_include_set  # noqa: SLF001


def direct(operator: Callable[..., Any], kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The operator, for calls by position: its kernel where the dispatcher has nothing else to do.

    Under a profiler it is always the operator, whose name is then to be seen.
    """

    def call(*operands: Any) -> Any:  # noqa: ANN401 - torch has no type for what operators take
        if (
            torch.compiler.is_compiling()
            or _is_profiled()
            or _keys_of_thread().raw_repr() & _OTHERS_OF_THREAD
        ):
            return operator(*operands)
        for each in operands:
            if isinstance(each, torch.Tensor) and _keys_of(each).raw_repr() & _OTHERS:
                return operator(*operands)
        return kernel(*operands)

    return call
