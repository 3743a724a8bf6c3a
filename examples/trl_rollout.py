"""TRL's own GRPOTrainer, with episodes of the sandbox by `rollout_func`.

    python examples/trl_rollout.py [MODEL] [PROGRAM ...]

MODEL is anything that transformers loads and that has a chat template; without one, a model of
a million parameters is made. It takes two steps, of two worlds played four times each.
"""

import sys
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from sandbox_server import LocalServer
from trainer.config import ModelConfig
from trainer.models import load_model
from trainer.trl_environments import SandboxRollouts, episode_returns

HERE = Path(__file__).parent


def main(name: str, files: list[Path]) -> None:
    model, tokenizer = load_model(ModelConfig(name), context_tokens=1024, seed=0)
    with LocalServer() as server:
        rollouts = SandboxRollouts(
            server.address,
            {file.stem: file.read_text() for file in files},
            max_turns=4,
            max_action_tokens=12,
        )
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            rollout_func=rollouts,
            reward_funcs=episode_returns,
            train_dataset=Dataset.from_dict({"prompt": rollouts.prompts(range(100))}),
            args=GRPOConfig(
                output_dir="runs/trl",
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=1024,
                max_steps=2,
                learning_rate=1e-4,
                bf16=False,
                report_to=[],
                save_strategy="no",
                logging_steps=1,
            ),
        )
        trainer.train()


if __name__ == "__main__":
    files = [Path(name) for name in sys.argv[2:]] or [HERE / "lights_out.py"]
    main(sys.argv[1] if len(sys.argv) > 1 else "tiny", files)
