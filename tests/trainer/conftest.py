"""Shared fixtures; torch stays at one thread, as a second core is never promised."""

from __future__ import annotations

import os

import pytest
import torch

from trainer.chat import ChatFormat
from trainer.config import ModelConfig
from trainer.generation_queue import GenerationQueue
from trainer.models import load_model
from trainer.transformers_engine import TransformersEngine

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
torch.set_num_threads(1)

SMALL = ModelConfig(hidden_size=32, layers=2, heads=2, intermediate_size=64)


@pytest.fixture(scope="session")
def small_model():
    return load_model(SMALL, context_tokens=256, seed=0)


@pytest.fixture
def chat(small_model):
    return ChatFormat(small_model[1])


@pytest.fixture
def generator(small_model):
    return GenerationQueue(TransformersEngine(*small_model))
