"""The fleet in simulated time, against its laws; and the page that is made of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spadework.cli import main
from spadework.console import CommandError
from spadework.scale import costs, fleet, forecast, page
from spadework.scale.events import Clock, Station
from spadework.scale.growth import Growth
from tests.scale import made

READ = costs.of(made.growth())
# Small, so that a test takes a second.
SMALL = forecast.Assumptions(node_cores=4, node_mib=4_096.0, episodes_per_client=250)


def test_costs_are_those_that_were_measured():
    assert READ.client_call_s == pytest.approx(1e-6 * made.CLIENT[0])
    assert READ.cold.server_s == pytest.approx(1e-6 * made.SERVER[1])
    assert READ.cold.environment_s == pytest.approx(1e-6 * made.ENVIRONMENTS[1], rel=0.01)
    assert READ.start_s == pytest.approx(1e-3 * made.START_MS)
    # The kernel's part included.
    assert READ.mib == pytest.approx(1.2 * made.MIB)


def test_figures_without_episodes_are_refused():
    empty = Growth(made.growth().setting, "", made.MACHINE)
    with pytest.raises(CommandError, match="measure the axis"):
        costs.of(empty)


def _played(seconds: float, **changes: float) -> tuple[fleet.Record, Station, fleet.Habits]:
    """A node of 4 cores with 500 episodes in two clients on one shard."""
    clock, chance = Clock(), random.Random(5)
    cores = Station(clock, 4)
    habits = dataclasses.replace(SMALL.habits(1.0), **changes)
    shard = fleet.Shard(clock, cores, READ, READ.cold)
    record = fleet.Record(0.0)
    clients = [fleet.Client(clock, shard, READ, habits, record, chance) for _ in range(2)]
    for client in clients:
        client.play(250)
    clock.run(seconds)
    return record, cores, habits


def test_every_item_is_answered_once_or_under_way():
    record, _, _ = _played(20.0)
    assert record.steps + record.hung == record.answered == len(record.item_s) + record.hung
    # At most all episodes have one under way.
    assert 0 <= record.asked - record.answered <= 500
    assert record.answered > 0.9 * 500 * 20 / 1.1


def test_cores_are_as_busy_as_items_starts_and_calls_cost():
    record, cores, habits = _played(30.0, hang_share=0.0)
    starts = record.answered / habits.steps
    items = record.answered * (READ.cold.server_s + READ.cold.environment_s)
    others = starts * (READ.start_s + READ.end_s)
    calls = 2 * 30.0 / (habits.gather_s + 1.0 / 250) * READ.server_call_s
    assert cores.busy_s == pytest.approx(items + others + calls, rel=0.1)


def test_episodes_that_loop_take_a_core_until_their_time_is_over():
    quiet, cores, _ = _played(20.0, hang_share=0.0)
    record, looping, habits = _played(20.0, hang_share=0.5, loop_share=1.0, hang_s=0.5)
    assert record.hung > 50
    taken = looping.busy_s - cores.busy_s * record.answered / quiet.answered
    assert taken == pytest.approx(record.hung * habits.hang_s, rel=0.3)


def test_a_batch_alone_takes_what_its_slowest_part_takes():
    record = fleet.closed_loop(READ, 1_000, 3)
    assert record.steps == record.asked == 3_000
    batch_s = max(record.item_s)
    each = READ.items(1_000)
    thread_s = READ.server_call_s + 1_000 * each.server_s
    all_s = thread_s + READ.client_call_s + 1_000 * (each.client_s + each.environment_s)
    # No sooner than the one thread can, or all cores together; no later than one after the other.
    assert max(thread_s, all_s / READ.cpus) <= batch_s <= all_s


def test_a_plan_grows_no_worse_than_its_demand():
    plans = [forecast.plan(READ, SMALL, n, 5.0) for n in (10_000, 100_000, 1_000_000)]
    for fewer, more in itertools.pairwise(plans):
        assert more.cores == pytest.approx(10 * fewer.cores)
        assert more.memory_mib == pytest.approx(10 * fewer.memory_mib)
        assert fewer.nodes < more.nodes <= 10 * fewer.nodes
    slower = forecast.plan(READ, SMALL, 10_000, 20.0)
    assert slower.cores < plans[0].cores
    assert slower.memory_mib == plans[0].memory_mib


def test_a_simulated_node_is_as_busy_as_planned_and_rebuilds_what_another_lost():
    planned = forecast.plan(READ, SMALL, 5_000, 2.0)
    outcome = forecast.simulate(READ, SMALL, planned)
    assert outcome.busy == pytest.approx(planned.cores / planned.nodes / SMALL.node_cores, rel=0.1)
    assert outcome.steps_per_s == pytest.approx(planned.steps_per_s / planned.nodes, rel=0.05)
    assert outcome.lost_episodes == -(-planned.episodes_per_node // (planned.nodes - 1))
    assert SMALL.notice_s < outcome.rebuilt_s < 60
    assert 0 < outcome.p50_ms <= outcome.p99_ms


def test_the_same_question_has_the_same_answer():
    planned = forecast.plan(READ, SMALL, 2_000, 2.0)
    assert forecast.simulate(READ, SMALL, planned) == forecast.simulate(READ, SMALL, planned)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "SIZES", (1_000, 2_000))
    monkeypatch.setattr(forecast, "THINK_S", (1.0, 2.0))
    monkeypatch.setattr(forecast, "_STEPS", 2_000)


@pytest.mark.usefixtures("quick")
def test_the_page_is_written_with_all_that_it_is_made_of(tmp_path: Path):
    figures, out = tmp_path / "figures", tmp_path / "docs"
    figures.mkdir()
    (figures / "growth.json").write_text(json.dumps(made.growth().to_json()))
    assert main(["scale", "page", "--figures", str(figures), "--out", str(out)]) == 0
    text = (out / "scale.md").read_text()
    assert "1,000 and 2,000 episodes at once" in text
    for name in ("growth.svg", "forecast.svg"):
        assert f"(scale/{name})" in text
        ElementTree.fromstring((out / "scale" / name).read_text())
    answered = json.loads((out / "scale" / "forecast.json").read_text())
    assert len(answered["plans"]) == len(answered["outcomes"]) == 4
    assert [each["episodes"] for each in answered["calibrations"]] == [64, 1_000, 5_000]
    # The figures alone give the same page.
    again = Growth.from_json(json.loads((out / "scale" / "growth.json").read_text()))
    assert page.render(again, forecast.Forecast.from_json(answered)) == text


def test_a_page_without_figures_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["scale", "page", "--figures", str(tmp_path)]) == 3
    assert "scale measure --out" in capsys.readouterr().err
