"""Members of an ensemble on several GPUs, or on several streams of one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pulsora import _core
from pulsora.forecast.gru.rollout import Rollout, rollout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsora.forecast.gru.ensemble import Ensemble

    Array = Any

__all__ = ["rollout_on"]


def rollout_on(
    parts: Sequence[Ensemble], features: Array, steps: int, *, state: Array | None = None,
    **options: Any,
) -> Rollout:  # fmt: skip
    """Continues rows of features by the parts of an ensemble, each where it is, at the same time.

    Each part on a GPU gets a stream of its own, which waits for the current streams of its GPU and
    of the features, and for which they wait. Parts on the CPU follow one another.

    Args:
        parts: Members side by side, as `Ensemble.spread` gives them.
        features: [b, features], a tensor of torch on any device.
        steps: J, see `rollout`.
        state: Initial states of all members, [E, b, H]; 0 by default.
        options: Of `rollout`; without dropout, because the masks follow from a member's number.

    Returns:
        All members, on the device of the features, with the bits of one rollout if all devices are
        of one kind.

    Raises:
        InputError: as `rollout`; for no parts, and for dropout.
        TypeError: for features that are not a tensor of torch.
    """
    _require(parts, features, options)
    made, streams, first = [], [], 0
    for part in parts:
        last = first + part.encoder.shape[0]
        device = part.encoder.device
        with _stream_on(device, features.device) as stream:
            given = None if state is None else state[first:last].to(device, non_blocking=True)
            there = features.to(device, non_blocking=True)
            one = rollout(part, there, steps, state=given, **options)
            made.append([_to(array, features.device) for array in one[:5]])
        if stream is not None:
            streams.append((stream, device))
        first = last
    for stream, device in streams:
        _join(stream, device, features.device)
    mean, log_variance, last_state, states, predicted = (
        _whole(list(arrays), features.device) for arrays in zip(*made, strict=True)
    )
    return Rollout(mean, log_variance, last_state, states, predicted)


def _require(parts: Sequence[Ensemble], features: Array, options: dict[str, Any]) -> None:
    """Checks the arguments of rollout_on."""
    if not hasattr(features, "detach"):
        raise TypeError(f"features is of type {type(features).__name__}; give a tensor of torch")
    if not parts:
        raise _core.InputError("parts is empty; give what Ensemble.spread gives")
    if options.get("dropout", 0.0):
        raise _core.InputError(
            "dropout needs the numbers of the members, which parts do not have; give the whole "
            "ensemble to rollout"
        )


def _to(array: Array, device: Any) -> Array:  # noqa: ANN401 - torch is optional
    return None if array is None else array.to(device, non_blocking=True)


def _join(stream: Any, device: Any, home: Any) -> None:  # noqa: ANN401 - torch is optional
    """Lets the current streams of a part's device and of the features wait for a stream."""
    import torch  # noqa: PLC0415 - optional

    torch.cuda.current_stream(device).wait_stream(stream)
    if home.type == "cuda":
        torch.cuda.current_stream(home).wait_stream(stream)
    else:
        stream.synchronize()


def _whole(arrays: list[Array], home: Any) -> Array:  # noqa: ANN401 - torch is optional
    """The results of all parts, joined in the current stream; None if there are none."""
    import torch  # noqa: PLC0415 - optional

    if arrays[0] is None:
        return None
    if home.type == "cuda":
        for array in arrays:  # memory of other streams, which may reuse it only afterwards
            array.record_stream(torch.cuda.current_stream(home))
    return torch.cat(arrays)


@contextlib.contextmanager
def _stream_on(device: Any, home: Any) -> Iterator[Any]:  # noqa: ANN401 - torch is optional
    """A new stream of a GPU that waits for the work so far; None on the CPU."""
    import torch  # noqa: PLC0415 - optional

    if device.type != "cuda":
        yield None
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    if home.type == "cuda":
        stream.wait_stream(torch.cuda.current_stream(home))
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield stream
