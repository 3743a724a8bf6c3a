"""Which back end samples for a run, made from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator

from trainer import processes
from trainer.config import Config, ConfigError
from trainer.generation import Generator
from trainer.generation_queue import GenerationQueue
from trainer.transformers_engine import TransformersEngine
from trainer.vllm_config import COLOCATED, SERVER

if TYPE_CHECKING:
    from trl.generation.vllm_client import VLLMClient

    from trainer.vllm_server import VLLMServerGenerator

# In a run's folder: the weights as vLLM last got them.
WEIGHTS_FOLDER = "vllm-weights"


def generator_for(config: Config, model: Any, tokenizer: Any) -> Generator:
    """What samples for designing, hints, play and evaluation.

    Raises:
        ConfigError: If vLLM is not installed here, or its server not there or not set up.
    """
    generation = config.generation
    if generation.backend not in (COLOCATED, SERVER):
        return in_process(config, model, tokenizer)
    if generation.backend == COLOCATED and processes.count() > 1:
        raise ConfigError(
            f"generation.backend={COLOCATED} takes its weights from a single process; launch one, "
            f"or several with generation.backend={SERVER} or transformers"
        )
    try:
        import vllm  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"generation.backend={generation.backend} needs vLLM beside the trainer, for its "
            f"server as well ({error}); pip install 'spadework[gpu]'"
        ) from error
    if generation.backend == COLOCATED:
        return _colocated(config, model, tokenizer)
    return _server(config, model, tokenizer)


def in_process(config: Config, model: Any, tokenizer: Any) -> GenerationQueue:
    """What samples with transformers, whoever samples for the rest of the run."""
    generation = config.generation
    return GenerationQueue(
        TransformersEngine(
            model, tokenizer, max_rows=generation.max_rows, threads=generation.threads
        )
    )


def _colocated(config: Config, model: Any, tokenizer: Any) -> Generator:
    from trl.generation.vllm_generation import VLLMGeneration

    from trainer.vllm_engine import VLLMEngine

    if not Path(model.name_or_path).is_dir():
        # Weights made here have no name by which vLLM could load them.
        folder = config.folder / WEIGHTS_FOLDER
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        model.name_or_path = str(folder)
    generation = VLLMGeneration(
        model,
        _accelerator(),
        tokenizer,
        mode="colocate",
        tensor_parallel_size=config.vllm.tensor_parallel,
        gpu_memory_utilization=config.vllm.memory_share,
        max_model_length=config.generation.context_tokens,
        max_num_seqs=config.generation.max_rows,
    )
    return GenerationQueue(
        VLLMEngine(generation, tokenizer, config.vllm, max_rows=config.generation.max_rows)
    )


def _server(config: Config, model: Any, tokenizer: Any) -> VLLMServerGenerator:
    from trl.generation.vllm_client import VLLMClient
    from trl.generation.vllm_generation import VLLMGeneration

    from trainer.vllm_server import FolderSync, VLLMServerGenerator

    settings = config.vllm
    url = settings.url.rstrip("/")
    try:
        if settings.weight_sync == "folder":
            client: VLLMClient = VLLMClient(url, connection_timeout=settings.start_timeout_s)
            folder = Path(settings.sync_folder or config.folder / WEIGHTS_FOLDER)
            sync: Any = FolderSync(client, model, folder)
        else:
            accelerator = _accelerator()
            model.to(accelerator.device)
            transfer = VLLMGeneration(
                model,
                _Alone(accelerator),
                tokenizer,
                mode="server",
                server_base_url=url,
                server_timeout=settings.start_timeout_s,
                group_port=settings.group_port,
            )
            client, sync = transfer.vllm_client, transfer.sync_weights
        return VLLMServerGenerator(
            client, sync, model, tokenizer, settings, temperature=config.generation.temperature
        )
    except NotImplementedError as error:
        raise ConfigError(
            f"vllm.weight_sync=nccl: {error} Without a GPU here, use vllm.weight_sync=folder"
        ) from error
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"vllm.url={url}: {error}") from error


class _Alone:
    """An accelerator for the process that leads, which is the only one that generates.

    TRL has all processes meet when it has made its client; here the others make none.
    """

    num_processes = 1
    process_index = 0
    is_main_process = True

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def wait_for_everyone(self) -> None:
        """Nobody else comes."""


def _accelerator() -> Accelerator:
    """Of the same kind as the trainer's, which comes later and shares its state."""
    return Accelerator(cpu=not torch.cuda.is_available())
