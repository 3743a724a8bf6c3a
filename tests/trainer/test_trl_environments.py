"""TRL's own trainer plays the sandbox's episodes, by either of its doors."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from sandbox_api.client import SandboxClient
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer

from sandbox_server import LocalServer
from tests.trainer.conftest import SMALL
from trainer.models import character_tokenizer, load_model
from trainer.trl_environments import (
    ProgramError,
    SandboxRollouts,
    episode_returns,
    sandbox_environment,
)

EXAMPLES = Path(__file__).parents[2] / "examples"

COUNT = """
class CountEnv:
    def reset(self, seed=None):
        self.left = 1 + seed % 2
        return f"Say + {self.left} times.", {}

    def step(self, action):
        if action == "fail":
            raise ValueError("as it was told")
        self.left -= action == "+"
        won = self.left == 0
        return f"{self.left} left", float(won), won, False, {}
"""


@pytest.fixture(scope="module")
def server():
    with LocalServer(backend="process") as server:
        yield server


@pytest.fixture
def client(server):
    with SandboxClient(server.address) as client:
        yield client


def arguments(folder: Path, **changes) -> GRPOConfig:
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 512,
        "max_steps": 1,
        "bf16": False,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return GRPOConfig(**settings | changes)


def test_a_game_is_a_tool_and_its_last_reward_the_rollouts(client) -> None:
    environment = sandbox_environment(client, client.register_program(COUNT))()
    assert environment.reset(prompt="ignored", seed=1) == "Say + 2 times."
    assert environment.act(action="-") == "2 left"
    assert environment.act(action="+") == "1 left"
    assert environment.act(action="+") == "0 left"
    with pytest.raises(RuntimeError, match="the episode is over"):
        environment.act(action="+")
    assert environment.get_reward() == 1.0
    assert environment.reset(seed=0) == "Say + 1 times."
    assert environment.get_reward() == 0.0
    assert get_json_schema(type(environment).act)["function"]["name"] == "act"


def test_episodes_without_a_seed_each_have_another(client) -> None:
    environment = sandbox_environment(client, client.register_program(COUNT))()
    assert environment.reset() != environment.reset()


def test_a_failed_environment_has_no_reward_and_the_next_episode_works(client) -> None:
    environment = sandbox_environment(client, client.register_program(COUNT))()
    environment.reset(seed=0)
    with pytest.raises(RuntimeError, match="the environment failed"):
        environment.act(action="fail")
    assert environment.get_reward() is None
    environment.reset(seed=0)
    environment.act(action="+")
    assert environment.get_reward() == 1.0


def test_a_turn_cap_cuts_an_episode_off(client) -> None:
    program = client.register_program(COUNT)
    environment = sandbox_environment(client, program, max_turns=2)()
    environment.reset(seed=1)
    environment.act(action="-")
    environment.act(action="-")
    assert environment.get_reward() == 0.0


def test_a_tool_use_program_offers_its_own_tools(client) -> None:
    program = client.register_program((EXAMPLES / "warehouse_tools.py").read_text())
    environment = sandbox_environment(client, program)()
    opening = environment.reset(seed=3)
    item = opening.split("'")[1]
    code = environment.find_item(name=item)
    assert '"code"' in code
    assert "in_stock" in environment.look_up(code=code.split('"')[3])
    schema = get_json_schema(type(environment).reserve)["function"]
    assert schema["parameters"]["required"] == ["code", "count"]
    assert schema["parameters"]["properties"]["count"]["type"] == "integer"
    assert get_json_schema(environment.answer)["function"]["parameters"]["required"] == ["answer"]
    assert not hasattr(environment, "act")
    assert isinstance(environment.answer(answer="nothing"), str)


def test_a_program_that_does_not_load_is_an_error_that_says_so(client) -> None:
    with pytest.raises(ProgramError, match="does not load"):
        sandbox_environment(client, client.register_program("raise ValueError"))


def tool_calling_model() -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """A model without sense, whose chat template knows tools."""
    tokenizer = character_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = (files("trl") / "chat_templates" / "qwen3.jinja").read_text()
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=4096,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    return model, tokenizer


@pytest.mark.parametrize("says", ["+", "fail"])
def test_trls_trainer_plays_by_tool_calls(client, tmp_path, monkeypatch, says) -> None:
    """With a model whose every first message is the same call; TRL parses, calls and scores."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    model, tokenizer = tool_calling_model()
    rewards = []

    def watch(environments, **_):
        rewards.extend(environment.get_reward() for environment in environments)
        return [0.0] * len(environments)

    factory = sandbox_environment(client, client.register_program(COUNT))
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        environment_factory=factory,
        reward_funcs=watch,
        train_dataset=Dataset.from_list([{"seed": n, **PROMPT} for n in (0, 2, 4, 6)]),
        args=arguments(tmp_path, max_tool_calling_iterations=2),
    )
    turn = iter(range(100))

    def scripted(prompt_ids, *_, **__):
        call = f'<tool_call>\n{{"name": "act", "arguments": {{"action": "{says}"}}}}\n</tool_call>'
        text = call if next(turn) == 0 else "Done."
        ids = tokenizer(text + "<|im_end|>", add_special_tokens=False)["input_ids"]
        return [ids] * len(prompt_ids), [[-1.0] * len(ids)] * len(prompt_ids)

    monkeypatch.setattr(trainer, "_generate_single_turn", scripted)
    trainer.train()
    assert rewards == [1.0 if says == "+" else None] * 4


PROMPT = {"prompt": [{"role": "user", "content": ""}]}


def test_trls_trainer_plays_whole_episodes(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    model, tokenizer = load_model(SMALL, context_tokens=512, seed=0)
    rollouts = SandboxRollouts(
        server.address, {"count": COUNT}, max_turns=3, max_action_tokens=2, system_prompt="Play."
    )
    seen = []

    def watched(prompts, trainer):
        played = rollouts(prompts, trainer)
        seen.extend(zip(played["env_mask"], played["episode_return"], strict=True))
        return played

    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        rollout_func=watched,
        # No play of so small a model wins; by chance the plays differ, so that there is an update.
        reward_funcs=[
            episode_returns,
            lambda completions, **_: [random.random() for _ in completions],
        ],
        train_dataset=Dataset.from_dict({"prompt": rollouts.prompts(range(8))}),
        args=arguments(tmp_path, learning_rate=0.1),
    )
    trainer.train()
    assert len(seen) == 4
    for mask, value in seen:
        # Three turns of two tokens at most; the environment's text between them is not trained.
        assert 1 <= sum(mask) <= 6 < len(mask)
        assert value == 0.0
    assert any(not torch.equal(before[n], v) for n, v in model.state_dict().items())


def test_a_lost_episode_trains_nothing(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    model, tokenizer = load_model(SMALL, context_tokens=512, seed=0)
    broken = COUNT.replace('action == "fail"', "True")
    rollouts = SandboxRollouts(server.address, {"broken": broken}, max_action_tokens=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        rollout_func=rollouts,
        reward_funcs=episode_returns,
        train_dataset=Dataset.from_dict({"prompt": rollouts.prompts(range(8))}),
        args=arguments(tmp_path, learning_rate=0.1),
    )
    trainer.train()
    assert all(torch.equal(before[n], v) for n, v in model.state_dict().items())


@pytest.mark.nsjail
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["trl_rollout.py", "trl_environment.py"])
def test_an_example_of_under_60_lines_trains(name: str, tmp_path: Path) -> None:
    script = EXAMPLES / name
    assert len(script.read_text().splitlines()) < 60
    folder = tmp_path / "model"
    if name == "trl_environment.py":
        model, tokenizer = tool_calling_model()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    root = str(EXAMPLES.parent)
    paths = os.pathsep.join([root, f"{root}/proto", os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script), *([str(folder)] if folder.exists() else [])],
        env={**os.environ, "PYTHONPATH": paths, "TRL_EXPERIMENTAL_SILENCE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert done.stdout.count("'reward'") == 2
