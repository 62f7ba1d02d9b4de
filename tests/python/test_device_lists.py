"""Parameters that list several devices."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import pulsora as pl
from pulsora import _core
from pulsora._internal.parameters import Parameters, default_of, parameter_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsora._internal.parameters import Field

FIELD: Field = {
    "name": "devices",
    "type": "devices",
    "unit": "",
    "doc": "Device models.",
    "range": "1 to 8 devices",
    "choices": [],
    "struct": "",
    "default": [pl.devices.ConstantStep().to_dict()],
}


class Checked(Parameters):
    """Checks lists of devices as the core does, entry by entry."""

    @classmethod
    def _validated(cls, values: Mapping[str, object]) -> dict[str, Any]:
        listed: Any = values.get("devices", [])
        return {"devices": [_validated(i, each) for i, each in enumerate(listed)]}


def _validated(index: int, values: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in values.items() if name != "model"}
    model = values["model"]
    return {"model": model, **_core.validate(model, rest, f"Listed.devices[{index}]")}


Listed: Any = parameter_class("Listed", [FIELD], "A list of devices.", Checked, __name__)


def test_lists_are_kept_in_order_as_tuples() -> None:
    fine, coarse = pl.devices.SoftBounds(dw_min=0.01), pl.devices.EcRam()
    listed = Listed(devices=[fine, coarse, fine.to_dict()])
    assert listed.devices == (fine, coarse, fine)
    assert Listed(devices=[coarse, fine]).devices[1] is fine
    assert Listed().devices == default_of(FIELD) == (pl.devices.ConstantStep(),)
    assert Listed.from_dict(listed.to_dict()) == listed
    assert copy.deepcopy(listed) == pickle.loads(pickle.dumps(listed)) == listed  # noqa: S301
    assert eval(repr(listed), {"Listed": Listed} | vars(pl.devices)) == listed  # noqa: S307


def test_copies_share_no_device_and_frozen_ones_do_not_change() -> None:
    listed = Listed(devices=[pl.devices.SoftBounds()])
    other, frozen = listed.replace(), listed.frozen()
    listed.devices[0].dw_min = 0.25
    assert listed.devices[0].dw_min == 0.25
    assert other.devices[0].dw_min == frozen.devices[0].dw_min == pl.devices.SoftBounds().dw_min
    with pytest.raises(AttributeError, match="dw_min cannot be set"):
        frozen.devices[0].dw_min = 0.25
    thawed = Listed(devices=frozen.devices)
    thawed.devices[0].dw_min = 0.25
    assert frozen.devices[0].dw_min == pl.devices.SoftBounds().dw_min


def test_entries_are_named_in_messages_and_shown_one_by_one() -> None:
    with pytest.raises(pl.ConfigError, match=r"devices\[1\].dw_min is -1"):
        Listed(devices=[{"model": "SoftBounds"}, {"model": "SoftBounds", "dw_min": -1.0}])
    with pytest.raises(pl.ConfigError, match=r"Listed\.devices\[1\] is EcRam itself.*EcRam\(\)"):
        Listed(devices=[pl.devices.SoftBounds(), pl.devices.EcRam])
    text = str(Listed(devices=[pl.devices.SoftBounds(), pl.devices.ConstantStep(dw_min=0.25)]))
    names = [line for line in text.splitlines() if line.startswith("  devices[")]
    assert names == ["  devices[0]  SoftBounds", "  devices[1]  ConstantStep"]
    assert "dw_min" in text
    assert "0.25  (default 0.001)" in text
