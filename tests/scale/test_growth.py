"""`spadework scale measure`: what is measured, what is said of it, and that it goes on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spadework.benchmark import rounds
from spadework.benchmark.case import Case, Figures
from spadework.cli import main
from spadework.scale import axes, curves, findings
from spadework.scale.growth import Growth
from tests.scale import made

MEASURE = ["scale", "measure", "--quick", "--backend", "process", "--seconds", "0.02"]


def test_laws_of_a_growth_are_those_it_was_made_with():
    found = {(f.quantity.name, f.quantity.axis): f for f in findings.findings(made.growth())}
    batch = found[findings.BATCH_SERVER, axes.EPISODES]
    assert batch.law.fixed == pytest.approx(1e-3 * made.SERVER[0])
    assert batch.law.each == pytest.approx(1e-3 * made.SERVER[1])
    assert batch.verdict == "not worse"
    assert found[findings.MEMORY, axes.EPISODES].slope.value == pytest.approx(1.0)
    assert findings.to_json(made.growth())["nothing_worse_than_linear"]


def test_two_cpus_are_compared_with_one_round_by_round():
    gained = findings.speedup(made.growth())
    assert gained is not None
    assert gained.ratios == pytest.approx([1.5, 1.5])


def test_what_grows_worse_than_linearly_is_named():
    growth = made.growth()
    growth.samples = [
        dataclasses.replace(
            sample,
            figures=dataclasses.replace(sample.figures, mib_per_episode=sample.episodes**0.5),
        )
        for sample in growth.samples
    ]
    assert not findings.to_json(growth)["nothing_worse_than_linear"]
    assert "Worse than linear: memory of all episodes over episodes" in findings.to_markdown(
        growth
    )


def test_time_by_the_clock_is_not_judged_beside_other_work():
    def slow(other_cpus: float) -> Growth:
        growth = made.growth()
        for sample in growth.samples:
            sample.figures.steps_per_s = 1e6 / sample.episodes
            sample.figures.other_cpus = other_cpus
        return growth

    found = findings.worse(findings.findings(slow(0.01)))
    assert [finding.quantity.name for finding in found] == ["a batch, time"]
    assert not findings.worse(findings.findings(slow(0.8)))


def test_the_picture_is_well_formed_and_names_every_side():
    text = curves.draw(made.growth())
    ElementTree.fromstring(text)
    for name in ("client", "server", "environments", "one CPU", "register all"):
        assert name in text


def test_a_growth_survives_its_file():
    growth = made.growth()
    assert Growth.from_json(json.loads(json.dumps(growth.to_json()))) == growth


def test_every_axis_is_measured_and_a_second_run_measures_only_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    cases: list[Case] = []

    def trial(case: Case) -> Figures:
        cases.append(case)
        if len(cases) == 6:
            raise KeyboardInterrupt
        return made.figures(case.episodes, cpus=case.cpus, programs=case.programs)

    monkeypatch.setattr(rounds, "trial", trial)
    command = [*MEASURE, "--out", str(tmp_path)]
    assert main(command) == 130
    assert main([*command, "--json"]) == 0
    # The one that was interrupted is measured again, the five before it are not.
    assert len(cases) == len(axes.points(list(axes.AXES), few=True)) + 1
    assert {case.programs for case in cases} == {1, 2, 4, 8}
    assert {case.cpus for case in cases} == {0, 1, 2}
    assert {case.program.observation_bytes for case in cases} >= {100, 100_000}
    shown = json.loads(capsys.readouterr().out)
    assert shown["nothing_worse_than_linear"]
    for name in ("growth.json", "findings.json", "growth.md", "growth.svg"):
        assert (tmp_path / name).stat().st_size > 100


def test_figures_of_other_settings_are_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rounds, "trial", lambda case: made.figures(case.episodes, cpus=case.cpus))
    assert main([*MEASURE, "--out", str(tmp_path)]) == 0
    assert main([*MEASURE[:-1], "0.5", "--out", str(tmp_path)]) == 2
    assert "was measured with" in capsys.readouterr().err


def test_programs_and_long_observations_go_through_the_real_server(tmp_path: Path):
    command = [*MEASURE, "--axes", "programs", "cpus", "--out", str(tmp_path)]
    assert main(command) in (0, 1)
    growth = Growth.from_json(json.loads((tmp_path / "growth.json").read_text()))
    assert not growth.failures
    for sample in growth.samples:
        assert sample.figures.register_cpu_ms is not None
        assert sample.figures.register_cpu_ms > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--axes", "moons"], "there are episodes"),
        (["--subject", "openenv"], "there are sandbox"),
        (["--rounds", "0"], "positive"),
    ],
)
def test_nonsense_is_a_usage_error(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([*MEASURE, "--out", str(tmp_path), *arguments]) == 2
    assert said in capsys.readouterr().err
