"""A real vLLM on the CPU, with SmolLM2-135M behind it; run by `make test-vllm` alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer.config import ModelConfig
from trainer.models import load_model, smollm2_folder

START_S = 600.0
NAME = "smollm2"


@dataclass(frozen=True)
class Served:
    """A running server.

    Attributes:
        url: Its root.
        folder: Of the weights that it began with.
    """

    url: str
    folder: Path


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with an output layer of its own: on a CPU, vLLM renews no other."""
    folder = tmp_path_factory.mktemp("smollm2")
    source = smollm2_folder()
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, tie_word_embeddings=False
    )
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@pytest.fixture
def model(weights):
    """The weights in this process, and their tokenizer."""
    return load_model(ModelConfig(name=str(weights)), context_tokens=1024, seed=0)


@pytest.fixture(scope="session")
def served(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(weights)]
    command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "2048"]
    command += ["--max-num-seqs", "32", "--logprobs-mode", "processed_logprobs"]
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, env=os.environ | settings, stdout=output, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while not _healthy(url):
            assert running.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(1)
        print(f"\nvLLM was ready after {START_S - deadline + time.monotonic():.0f} s")
        yield Served(url, weights)
    finally:
        running.terminate()
        running.wait()


def _healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).status_code == 200
    except requests.RequestException:
        return False
