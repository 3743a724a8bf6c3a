"""A server with those endpoints of `vllm serve` that TRL's client uses, and a real model.

It samples token by token with a forward pass each, obeys grammars, and takes weights while it
runs: slow, and what vLLM does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import uvicorn
import xgrammar
from fastapi import FastAPI, HTTPException
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from vllm.distributed.weight_transfer.nccl_common import worker_init

from trainer.grammar import _tokenizer_info


class ServedModel:
    """The model, and what is known of the weights that come.

    Args:
        model: Sampled from; its weights change.
        tokenizer: Of the model.

    Attributes:
        syncs: Weight updates that were finished.
        cache_resets: Times that kept prefixes were let go.
        asked: Bodies of the completions, in order of arrival.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model = model
        self.syncs = 0
        self.cache_resets = 0
        self.asked: list[dict[str, Any]] = []
        self.store: Any = None
        self._received = 0
        self._lock = threading.Lock()
        info = _tokenizer_info(tokenizer, len(tokenizer), [tokenizer.eos_token_id])
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    @torch.no_grad()
    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """One choice of a completion."""
        (prompt_ids,) = body["prompt"]
        matcher = None
        if "structured_outputs" in body:
            grammar = self._compiler.compile_grammar(body["structured_outputs"]["grammar"])
            matcher = xgrammar.GrammarMatcher(grammar)
        rng = torch.Generator().manual_seed(body.get("seed", 0))
        token_ids: list[int] = []
        logprobs: list[float] = []
        with self._lock:
            while len(token_ids) < body["max_tokens"]:
                context = torch.tensor([[*prompt_ids, *token_ids]])
                logits = self.model(context).logits[:, -1] / (body["temperature"] or 1.0)
                if matcher is not None and not matcher.is_terminated():
                    mask = xgrammar.allocate_token_bitmask(1, logits.shape[1])
                    matcher.fill_next_token_bitmask(mask)
                    xgrammar.apply_token_bitmask_inplace(logits, mask)
                scores = logits[0].log_softmax(-1)
                drawn = torch.multinomial(scores.exp(), 1, generator=rng)[0]
                token = int(drawn if body["temperature"] else scores.argmax())
                if matcher is not None and not matcher.is_terminated():
                    matcher.accept_token(token)
                token_ids.append(token)
                logprobs.append(float(scores[token]))
                if token in body["stop_token_ids"]:
                    break
        return {
            "prompt_token_ids": prompt_ids,
            "token_ids": token_ids,
            "logprobs": {
                "tokens": [f"token_id:{token}" for token in token_ids],
                "token_logprobs": logprobs,
                "top_logprobs": [None] * len(token_ids),
            },
        }

    @torch.no_grad()
    def receive(self, names: list[str], dtypes: list[str], shapes: list[list[int]]) -> None:
        """Take tensors in as they come."""
        weights = dict(self.model.named_parameters())
        with self._lock:
            for name, dtype, shape in zip(names, dtypes, shapes, strict=True):
                sent = bytearray(self.store.get(f"tensor {self._received}"))
                self._received += 1
                tensor = torch.frombuffer(sent, dtype=getattr(torch, dtype)).reshape(shape)
                weights[name].copy_(tensor)

    def load(self, folder: str) -> None:
        """Take weights from a folder."""
        with self._lock:
            self.model.load_state_dict(load_file(f"{folder}/model.safetensors"), strict=False)


def _application(served: ServedModel, logprobs_mode: str, developing: bool) -> FastAPI:
    app = FastAPI()

    @app.get("/health")
    def health() -> None: ...

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"data": [{"id": "served"}]}

    @app.post("/v1/completions")
    def completions(body: dict[str, Any]) -> dict[str, Any]:
        served.asked.append(body)
        return {"choices": [served.complete(body)]}

    @app.get("/server_info")
    def server_info() -> dict[str, Any]:
        config = {
            "model_config": {"logprobs_mode": logprobs_mode},
            "weight_transfer_config": {"backend": "nccl"},
            "device_config": {"device": "cuda"},
        }
        return {"vllm_config": config}

    @app.get("/get_world_size")
    def world_size() -> dict[str, int]:
        return {"world_size": 1}

    @app.post("/init_weight_transfer_engine")
    def init(body: dict[str, Any]) -> dict[str, Any]:
        served.store = worker_init(body["init_info"])
        return {}

    @app.post("/start_weight_update")
    def start() -> dict[str, Any]:
        return {}

    @app.post("/update_weights")
    def update(body: dict[str, Any]) -> dict[str, Any]:
        info = body["update_info"]
        served.receive(info["names"], info["dtype_names"], info["shapes"])
        return {}

    @app.post("/finish_weight_update")
    def finish() -> dict[str, Any]:
        served.syncs += 1
        return {}

    @app.post("/reset_prefix_cache")
    def reset() -> dict[str, bool]:
        served.cache_resets += 1
        return {"success": True}

    @app.post("/collective_rpc")
    def collective_rpc(body: dict[str, Any]) -> dict[str, Any]:
        if not developing:
            raise HTTPException(404)
        assert body["method"] == "reload_weights"
        served.load(body["kwargs"]["weights_path"])
        served.syncs += 1
        return {"results": [None]}

    return app


@contextmanager
def serve(
    served: ServedModel,
    *,
    logprobs_mode: str = "processed_logprobs",
    developing: bool = True,
) -> Iterator[str]:
    """Run a server in a thread; yields its root."""
    app = _application(served, logprobs_mode, developing)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
