"""TRL's own GRPOTrainer, with episodes of the sandbox by `environment_factory`.

    python examples/trl_environment.py MODEL [PROGRAM ...]

MODEL is anything that transformers loads and whose chat template knows tools, such as
Qwen/Qwen3-0.6B. Of a game the model has the tool `act`, of a tool-use program its own tools.
"""

import sys
from pathlib import Path

from datasets import Dataset
from sandbox_api import SandboxClient
from trl import GRPOConfig, GRPOTrainer

from sandbox_server import LocalServer
from trainer.trl_environments import sandbox_environment

HERE = Path(__file__).parent


def main(model: str, files: list[Path]) -> None:
    with LocalServer() as server, SandboxClient(server.address) as client:
        factories = {
            file.stem: sandbox_environment(client, client.register_program(file.read_text()))
            for file in files
        }
        # A row names the environment and its world; the environment's text is the prompt.
        rows = [{"environment": name, "seed": seed} for seed in range(100) for name in factories]
        trainer = GRPOTrainer(
            model=model,
            environment_factory=factories,
            train_dataset=Dataset.from_list(rows),
            args=GRPOConfig(
                output_dir="runs/trl",
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=1024,
                max_tool_calling_iterations=8,
                max_steps=2,
                bf16=False,
                report_to=[],
                save_strategy="no",
                logging_steps=1,
            ),
        )
        trainer.train()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    names = sys.argv[2:] or [HERE / "lights_out.py", HERE / "warehouse_tools.py"]
    main(sys.argv[1], [Path(name) for name in names])
