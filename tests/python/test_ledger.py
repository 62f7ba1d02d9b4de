"""Ledgers: sums over tiles, costs, other ways to train, CSV and JSON, and reports."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
import torch

import pulsora as pl
from conftest import ROOT
from pulsora.accounting import EVENTS, Cost, Costs
from pulsora.records import files
from pulsora.records.collect import epoch_record
from pulsora.report.counts import ledger_section
from pulsora.report.page import page
from pulsora.report.runs import load

if TYPE_CHECKING:
    from pathlib import Path

ROWS, STEPS = 6, 3
ALL = ROWS * STEPS


def model_of(config: pl.TileConfig) -> torch.nn.Sequential:
    """A small model after three steps; its first layer has no backward reads."""
    model = torch.nn.Sequential(
        pl.nn.AnalogLinear(7, 5, bias=False, config=config),
        torch.nn.Tanh(),
        pl.nn.AnalogLinear(5, 4, bias=False, config=config),
    )
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(ROWS, 7)).square().sum().backward()
        optimizer.step()
    return model


def priced(**changes: Cost) -> Costs:
    """Costs of different primes, so that no sum agrees by accident."""
    primes = (2, 3, 5, 7, 11, 13, 17, 19, 23)
    events = {name: Cost(float(p), float(p)) for name, p in zip(EVENTS, primes, strict=True)}
    area = {"cell": 1.0, "dac": 10.0, "adc": 100.0}
    return Costs(events | changes, area, lines_per_dac=2, lines_per_adc=4)


def test_a_ledger_adds_the_arrays_of_all_layers() -> None:
    found = pl.ledger(model_of(pl.SingleConfig(forward=pl.IOParameters(bound_management="none"))))
    assert [(row.layer, row.array, row.cells) for row in found.rows] == [
        ("0", "visible", 35), ("2", "visible", 20),
    ]  # fmt: skip
    first, second = found.rows
    assert (first.dac, first.adc, first.array_read) == (7 * ALL, 5 * ALL, ALL)
    assert (second.dac, second.adc) == (9 * ALL, 9 * ALL)
    assert found.total.dac == first.dac + second.dac
    assert found.total.slot == first.slot + second.slot > 0
    assert first.cell_pulses_at_most == first.slot
    assert first.pulses_per_cell == first.pulse / 35 <= first.slot
    assert found.per(ALL)["dac"] == 16.0
    assert found.total.energy is None
    assert found.missing == []


def test_energy_time_and_area_are_sums_of_costs() -> None:
    model = model_of(pl.SingleConfig(forward=pl.IOParameters(bound_management="none")))
    found = pl.ledger(model, priced())
    row = found.rows[1]
    energies = dict(zip(EVENTS, (2, 3, 5, 7, 11, 13, 17, 19, 23), strict=True))
    assert row.energy == sum(cost * getattr(row, name) for name, cost in energies.items())
    # A read takes 7, two conversions by DACs of 13, and four by ADCs of 17.
    assert row.time == 3 * row.slot + 2 * ALL * (7 + 2 * 13 + 4 * 17)
    # Of 4 rows and 5 columns, DACs for 2 + 3 and ADCs for 1 + 2.
    assert row.area == 20 + 10 * 5 + 100 * 3
    assert found.total.energy == pytest.approx(sum(one.energy or 0.0 for one in found.rows))
    assert found.missing == []


def test_no_cost_is_invented() -> None:
    found = pl.ledger(model_of(pl.SingleConfig()), priced(adc=Cost(energy=1.0)))
    assert found.total.time is None
    assert found.total.energy is not None
    assert found.missing == ["adc.time"]
    free = pl.ledger(model_of(pl.IdealConfig()), {"events": {"digital_operation": {"energy": 2.0}}})
    assert free.total.energy is None
    assert "digital_byte.energy" in free.missing


def test_other_ways_to_train_by_hand() -> None:
    others = pl.ledger(model_of(pl.SingleConfig())).alternatives
    sgd, mixed = others["digital SGD"], others["mixed precision"]
    # Both layers are read forward and updated; the second one backward too.
    assert sgd.digital_operation == ALL * (35 * 2 + 20 * 3)
    assert sgd.digital_byte == 16 * STEPS * 55
    assert mixed.digital_operation == ALL * 55
    assert mixed.line_write == STEPS * 9
    assert (mixed.dac, mixed.adc) == (ALL * (7 + 5 + 4), ALL * (5 + 4 + 5))
    ideal = pl.ledger(model_of(pl.IdealConfig()))
    assert ideal.total.digital_operation == sgd.digital_operation
    assert ideal.total.digital_byte == sgd.digital_byte


def test_csv_and_json_hold_the_same_numbers() -> None:
    found = pl.ledger(model_of(pl.LRTTConfig(rank=2, transfer_every=2)), priced())
    table = json.loads(found.to_json())
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == len(found.rows) + 3
    for text, row in zip(rows, table["rows"], strict=False):
        assert {k: "" if v is None else str(v) for k, v in row.items()} == text
    assert table["total"]["pulse"] == sum(row["pulse"] for row in table["rows"])
    assert table["transfers"] == 2
    assert str(found).splitlines()[0].split()[:3] == ["layer", "array", "cells"]


def test_tiles_without_torch() -> None:
    tile = pl.Tile(4, 5)
    assert pl.ledger(tile).rows[0].layer == "tile"
    assert [row.layer for row in pl.ledger({"a": tile, "b": tile}).rows] == ["a", "b"]
    with pytest.raises(TypeError, match="give a model with analog layers"):
        pl.ledger(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"events": {"adcs": {}}}, "events has 'adcs': did you mean 'adc'"),
        ({"events": {"adc": {"energy": -1.0}}}, r"events.adc.energy is -1.0; give a finite"),
        ({"events": {"adc": {"power": 1.0}}}, "events.adc has 'power'"),
        ({"events": {"adc": 3}}, "events.adc is 3; give a table"),
        ({"area": {"cell": "wide"}}, "area.cell is 'wide'"),
        ({"lines_per_adc": 0}, "lines_per_adc is 0; give a number of lines"),
        ({"cost": {}}, "costs has 'cost'"),
    ],
    ids=str,
)
def test_bad_costs_name_the_entry(table: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pl.ledger(pl.Tile(2, 2), table)


def test_bad_counts_are_refused() -> None:
    for count in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="above 0"):
            pl.ledger(pl.Tile(2, 2)).per(count)


def test_the_costs_of_the_examples_load(tmp_path: Path) -> None:
    costs = Costs.load(ROOT / "examples" / "costs.toml")
    assert costs.events["adc"].energy == 1.67
    assert costs.lines_per_adc == 128
    bad = tmp_path / "bad.toml"
    bad.write_text("[events.adc]\nenergy = -1\n")
    with pytest.raises(ValueError, match=r"bad.toml': events.adc.energy is -1"):
        Costs.load(bad)


def test_a_report_has_the_ledger(tmp_path: Path) -> None:
    model = model_of(pl.SingleConfig())
    record = epoch_record(model, 1, {"loss": 1.0})
    (tmp_path / files.FILE).write_bytes(files.to_lines([files.run_line("a", {}), record]))
    runs = load([tmp_path])
    text = page(runs)
    assert "<h2>Ledger</h2>" in text
    assert f"<td>{pl.ledger(model).total.array_read}</td>" in text
    assert "mixed precision" in text
    assert "<th>energy</th>" not in text
    assert "<th>energy</th>" in page(runs, priced())
    for tile in record["tiles"]:
        del tile["hardware"]
    (tmp_path / files.FILE).write_bytes(files.to_lines([files.run_line("a", {}), record]))
    assert "<h2>Ledger</h2>" not in page(load([tmp_path]))


def test_a_report_shows_numbers_with_units(tmp_path: Path) -> None:
    model = model_of(pl.SingleConfig())
    record = epoch_record(model, 1, {"loss": 1.0})
    lines = [files.run_line("a", {}), record, epoch_record(model, 2, {"loss": 1.0})]
    (tmp_path / files.FILE).write_bytes(files.to_lines(lines))
    reads = pl.ledger(model).total.array_read
    costs = Costs({"array_read": Cost(energy=5e6 / reads)}, {"cell": 1000.0, "dac": 0, "adc": 0})
    heads, [found] = ledger_section(load([tmp_path]), costs)
    rows = dict(found.rows)
    at = heads.index("reads")
    assert (rows["total"][at], rows["total per epoch"][at]) == (f"{reads}", f"{reads / 2:.3g}")
    assert list(rows)[:2] == ["0: W (visible)", "2: W (visible)"]
    assert rows["total"][heads.index("area")] == "0.055\u202fmm\u00b2"
    assert "costs that are not known: " in found.notes[0]
    costs = Costs(
        {name: Cost(0.0, 0.0) for name in EVENTS} | {"array_read": Cost(5e6 / reads, 0.1)}
    )
    heads, [found] = ledger_section(load([tmp_path]), costs)
    rows = dict(found.rows)
    at = heads.index("energy")
    assert (rows["total"][at], rows["total per epoch"][at]) == (
        "5\u202f\u00b5J",
        "2.5\u202f\u00b5J",
    )
    assert rows["total"][heads.index("time")] == f"{0.1 * reads:.3g}\u202fns"


def test_damaged_counts_in_records_are_refused(tmp_path: Path) -> None:
    record = epoch_record(model_of(pl.SingleConfig()), 1, {"loss": 1.0})
    record["tiles"][0]["hardware"]["reads"][0]["dac"] = "many"
    (tmp_path / files.FILE).write_bytes(files.to_lines([files.run_line("a", {}), record]))
    with pytest.raises(ValueError, match="line 2: this is no record"):
        load([tmp_path])
