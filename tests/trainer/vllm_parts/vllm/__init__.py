"""The parts of vLLM that TRL's client needs beside a trainer, for a machine without vLLM.

The client is TRL's own, and the server (tests/trainer/vllm_protocol.py) has its endpoints with a
real model behind them. Only the way of the weights is another: a TCP store for NCCL, which needs
GPUs.
"""

__version__ = "0.31.0"


class LLM:
    """vLLM in a process: not among the parts."""


class SamplingParams:
    """Of `LLM`."""


class RequestOutput:
    """Of `LLM`."""
