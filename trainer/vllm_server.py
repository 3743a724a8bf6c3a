"""vLLM as a server of its own that samples for a run, and gets each step's weights.

The client is TRL's, over plain `vllm serve`: prompts go as token ids, and what was sampled comes
back as token ids with log-probabilities, one request at a time, so that the server batches as it
likes. Its numbers differ from the trainer's in the last digits (other kernels, other batches), so
what it samples is `exact` in its tokens and not in its log-probabilities; docs/generation.md.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
from accelerate.utils import is_peft_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.generation.vllm_client import VLLMClient

from trainer.generation import Completion, GenerationCount, GenerationError, GenerationRequest
from trainer.grammar import GrammarCompiler
from trainer.models import stop_ids
from trainer.sandbox_calls import BusyClock
from trainer.vllm_config import VLLMConfig

# vLLM takes a seed of 64 bits, signed; JSON readers elsewhere may keep 53 of them.
SEED_BITS = 48
PROCESSED = "processed_logprobs"


class ServerSetupError(RuntimeError):
    """The server was not started in the way that training needs; the message says how."""


class VLLMServerGenerator:
    """A `Generator` over a running `vllm serve`.

    Args:
        client: TRL's client of it.
        sync: Brings the weights as they are to the server.
        model: Whose weights these are.
        tokenizer: Of the model, and of the server's.
        config: How to use it.
        temperature: Of training, in both roles.

    Raises:
        ServerSetupError: If its log-probabilities would not be those of what it samples from.
    """

    exact = False

    def __init__(
        self,
        client: VLLMClient,
        sync: Callable[[], None],
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        config: VLLMConfig,
        *,
        temperature: float,
    ) -> None:
        self._client = client
        self._sync = sync
        self._stop_ids = stop_ids(model, tokenizer)
        vocab_size = model.config.get_text_config().vocab_size
        self._compiler = GrammarCompiler(tokenizer, vocab_size, sorted(self._stop_ids))
        self._seeded = config.seeded
        # requests is not asynchronous: a thread a request in flight.
        self._threads = ThreadPoolExecutor(config.concurrency, "vllm-server")
        self._seed = 0
        self._unnamed = 0
        self._clock = BusyClock()
        self._counted_s = 0.0
        self.count = GenerationCount()
        self._check_logprobs(temperature)

    def begin(self, seed: int) -> None:
        """Send the weights as they are; seed the streams.

        Raises:
            GenerationError: If the server does not take them.
        """
        try:
            self._sync()
        except Exception as error:  # TRL raises no type of its own
            raise GenerationError(f"the vLLM server did not take the weights: {error}") from error
        self._seed, self._unnamed = seed, 0

    def forget(self, key: str) -> None:
        """Nothing: the server keeps what prefixes it has room for."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion at the server.

        Raises:
            ValueError: If the prompt is empty, the grammar does not compile, or even exploration
                is asked for, which a server does not offer.
            GenerationError: If the server gave none.
        """
        if not request.prompt_ids:
            raise ValueError("cannot continue an empty prompt")
        if request.explore:
            raise ValueError("a vLLM server draws no even choices; use design.explore=0")
        options = self._options(request)
        loop = asyncio.get_running_loop()
        with self._clock:
            completion = await loop.run_in_executor(self._threads, self._ask, request, options)
        self.count.seconds += self._clock.seconds - self._counted_s
        self._counted_s = self._clock.seconds
        self.count.tokens += len(completion.token_ids)
        if request.grammar is None:
            completion.allowed = [None] * len(completion.token_ids)
            return completion
        try:
            completion.allowed = self._compiler.allowed(request.grammar, completion.token_ids)
        except ValueError as error:
            raise GenerationError(f"the vLLM server ignored a grammar: {error}") from error
        return completion

    def close(self) -> None:
        """Let go of the connections."""
        self._threads.shutdown(cancel_futures=True)
        self._client.close_communicator()
        self._client.session.close()

    def _options(self, request: GenerationRequest) -> dict[str, Any]:
        options: dict[str, Any] = {"stop_token_ids": sorted(self._stop_ids)}
        if request.grammar is not None:
            options["structured_outputs"] = {"grammar": request.grammar.ebnf()}
        if self._seeded:
            stream = request.stream
            if not stream:
                stream = f"unnamed {self._unnamed}"
                self._unnamed += 1
            options["seed"] = random.Random(f"{self._seed}/{stream}").getrandbits(SEED_BITS)
        return options

    def _ask(self, request: GenerationRequest, options: dict[str, Any]) -> Completion:
        try:
            answer: dict[str, Any] = self._client.generate(
                [list(request.prompt_ids)],
                temperature=max(0.0, request.temperature),
                max_tokens=request.max_new_tokens,
                logprobs=0,
                generation_kwargs=options,
            )
        except Exception as error:  # TRL raises no type of its own
            raise GenerationError(f"the vLLM server gave no completion: {error}") from error
        token_ids = answer["completion_ids"][0]
        logprobs = [place[0] for place in answer["logprobs"][0]]
        if not token_ids or None in logprobs or len(logprobs) != len(token_ids):
            raise GenerationError("the vLLM server gave tokens without log-probabilities")
        return Completion(token_ids, logprobs, [], token_ids[-1] in self._stop_ids)

    def _check_logprobs(self, temperature: float) -> None:
        """The update divides by what was sampled from: that, and not the raw output, is needed."""
        mode = self._client.get_server_info()["model_config"]["logprobs_mode"]
        if mode != PROCESSED and temperature != 1.0:
            raise ServerSetupError(
                f"the vLLM server gives {mode}, which leave out generation.temperature; start it "
                f"with --logprobs-mode {PROCESSED}"
            )


class FolderSync:
    """Brings weights to a server through a folder that both can read.

    Args:
        client: Of the server, which runs with VLLM_SERVER_DEV_MODE=1.
        model: The weights.
        folder: Where they are written; the server knows it by the same path.

    Raises:
        ValueError: If the model has adapters.
        ServerSetupError: If the server would not renew all of its weights.
    """

    def __init__(self, client: VLLMClient, model: PreTrainedModel, folder: Path) -> None:
        if is_peft_model(model):
            raise ValueError("vllm.weight_sync=folder sends whole weights; use nccl with adapters")
        tied = model.config.get_text_config().tie_word_embeddings
        if tied and client.get_server_info()["device_config"]["device"] == "cpu":
            raise ServerSetupError(
                "on a CPU, vLLM does not renew an output layer that is the embeddings as well, as "
                "in this model; use generation.backend=transformers there"
            )
        self._client = client
        self._model = model
        self._folder = folder.absolute()

    def __call__(self) -> None:
        """Write the weights, and have the server read them.

        Raises:
            ServerSetupError: If it has no endpoint for that.
            OSError: If they cannot be written.
        """
        fresh = self._folder.with_name(self._folder.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        self._model.save_pretrained(fresh)
        shutil.rmtree(self._folder, ignore_errors=True)
        os.replace(fresh, self._folder)
        answer = self._client.session.post(
            f"{self._client.base_url}/collective_rpc",
            json={"method": "reload_weights", "kwargs": {"weights_path": str(self._folder)}},
        )
        if answer.status_code == requests.codes.not_found:
            raise ServerSetupError(
                "the vLLM server has no development endpoints; start it with "
                "VLLM_SERVER_DEV_MODE=1 in its environment"
            )
        if answer.status_code != requests.codes.ok:
            raise ServerSetupError(
                f"it cannot read the weights in {self._folder} ({answer.status_code}: "
                f"{answer.text[:400]}); vllm.sync_folder names a folder that both can read"
            )
        self._client.reset_prefix_cache()
