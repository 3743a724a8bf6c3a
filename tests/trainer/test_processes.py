"""Several processes that update together, started as a launcher starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import ClusterConfig
from safetensors.torch import load_file

from tests.trainer.test_run import configuration, start
from trainer import processes
from trainer.config import ConfigError
from trainer.config_reading import load_config
from trainer.generators import generator_for
from trainer.runfolder import RunFolder

EXAMPLES = Path(__file__).parents[2] / "examples" / "accelerate"
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
SAME = ("step", "agent/mean_return", "agent/return_n", "sandbox/lost_plays", "gates/OK")
ALIKE = ("update/loss", "update/entropy", "update/grad_norm")


def launch(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAUNCHER, "-m", "tests.trainer.one_of_many", str(folder), *overrides],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
        cwd=Path(__file__).parents[2],
    )


def weights(run: RunFolder) -> dict:
    checkpoint = run.newest_checkpoint()
    assert checkpoint is not None
    (file,) = checkpoint.glob("*model.safetensors")
    return load_file(file)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_processes_train_and_resume_like_one(tmp_path: Path):
    # Designer rows are stale after two steps, of which both processes must know.
    overrides = (
        *("update.accumulation=2", "update.kl_coef=0.05", "update.entropy_coef=0"),
        "update.decay=false",  # over runs of another length
    )
    config = configuration(tmp_path / "alone", "run.steps=4", *overrides)
    await start(config)
    for steps in (2, 4):
        done = launch(tmp_path / "together", f"run.steps={steps}", *overrides)
        assert done.returncode == 0, done.stderr[-4000:]
    alone, together = RunFolder(config.folder), RunFolder(tmp_path / "together" / "test")
    rows, expected = together.metrics(), alone.metrics()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row, other in zip(rows, expected, strict=True):
        for key in SAME:
            assert row.get(key) == other.get(key), (key, row["step"])
        for key in ALIKE:
            assert row[key] == pytest.approx(other[key], rel=1e-3, abs=1e-5), (key, row["step"])
    got, wanted = weights(together), weights(alone)
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert (got[name] - value).abs().max() < 1e-4, name


FSDP = {"ACCELERATE_USE_FSDP": "true"}
ZERO = {"ACCELERATE_USE_DEEPSPEED": "true"}


@pytest.mark.parametrize(
    ("launched", "named"),
    [(FSDP, "FSDP"), (ZERO | {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, "ZeRO-3")],
)
def test_divided_weights_are_refused_with_what_to_do(launched, named, monkeypatch):
    for name, value in (launched | {"WORLD_SIZE": "2", "RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(processes.DividedWeightsError, match=f"{named} .* DDP or ZeRO of stage 1"):
        processes.join()


def test_a_deepspeed_file_is_read_for_its_stage(tmp_path: Path, monkeypatch):
    file = tmp_path / "zero.json"
    file.write_text('{"zero_optimization": {"stage": 3}}')
    launched = ZERO | {"ACCELERATE_DEEPSPEED_CONFIG_FILE": str(file), "WORLD_SIZE": "2"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(processes.DividedWeightsError, match="ZeRO-3"):
        processes.join()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_configurations_of_accelerate(file: Path):
    config = ClusterConfig.from_yaml_file(str(file))
    assert config.num_processes > 1
    assert config.deepspeed_config.get("zero_stage", 0) < 3
    assert not config.fsdp_config


def test_a_colocated_vllm_is_refused_beside_several_training_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    config = load_config("cpu-demo", ["generation.backend=vllm-colocated", "design.explore=0"])
    with pytest.raises(ConfigError, match="takes its weights from a single process"):
        generator_for(config, None, None)


def test_one_process_has_nobody_to_wait_for():
    processes.join()
    assert processes.leads()
    assert processes.share("rows") == "rows"
    processes.leave()


@pytest.mark.timeout(300)
def test_processes_end_when_the_one_that_leads_fails(tmp_path: Path):
    done = launch(tmp_path, "run.steps=2", "--fail")
    assert done.returncode != 0
    assert (
        "LeaderError: the process that leads has failed: RuntimeError: no designer" in done.stderr
    )
