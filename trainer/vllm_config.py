"""Settings of vLLM where it generates for a run, in the trainer's process or as a server."""

from __future__ import annotations

from dataclasses import dataclass

TRANSFORMERS, COLOCATED, SERVER = "transformers", "vllm-colocated", "vllm-server"
BACKENDS = (TRANSFORMERS, COLOCATED, SERVER)
WEIGHT_SYNCS = ("nccl", "folder")


@dataclass(frozen=True)
class VLLMConfig:
    """vLLM as the generation back end; see docs/generation.md.

    Attributes:
        url: Of the server for `generation.backend=vllm-server`, without `/v1`.
        weight_sync: How new weights reach the server: `nccl`, from GPU to GPU, as TRL does it; or
            `folder`, through a folder that both can read.
        sync_folder: For `folder`: where the weights are written, by a path that the server knows
            as well; empty for a folder in the run's.
        group_port: For `nccl`: port of the trainer's machine, where the server's workers join.
        start_timeout_s: Longest wait for the server to be there.
        concurrency: Requests in flight at the server.
        seeded: Whether each request's sampling has its own seed. With the same weights and
            batches the same is sampled again; it costs speed where batches are large.
        memory_share: For `vllm-colocated`: share of the GPU's memory that vLLM takes.
        tensor_parallel: For `vllm-colocated`: trainer processes that share one copy of the model.
    """

    url: str = ""
    weight_sync: str = "nccl"
    sync_folder: str = ""
    group_port: int = 51216
    start_timeout_s: float = 240.0
    concurrency: int = 64
    seeded: bool = True
    memory_share: float = 0.3
    tensor_parallel: int = 1

    def problem(self, backend: str) -> str:
        """What cannot work among the settings, in a sentence; empty if nothing.

        Args:
            backend: `generation.backend`.
        """
        if backend == SERVER and not self.url:
            return (
                "generation.backend=vllm-server needs vllm.url, such as http://localhost:8000; "
                "docs/generation.md says how to start the server"
            )
        if self.url and backend != SERVER:
            return f"vllm.url is set, and generation.backend is {backend}; use {SERVER}"
        if self.url.rstrip("/").endswith("/v1"):
            return f"vllm.url is {self.url!r}; it is the server's root, without /v1"
        if self.weight_sync not in WEIGHT_SYNCS:
            names = " or ".join(WEIGHT_SYNCS)
            return f"vllm.weight_sync is {self.weight_sync!r}; it must be {names}"
        if self.sync_folder and self.weight_sync != "folder":
            return "vllm.sync_folder is for vllm.weight_sync=folder; set that, or leave it empty"
        if not 0 < self.memory_share < 1:
            return f"vllm.memory_share is {self.memory_share}; it must be between 0 and 1"
        return ""


VLLM_MINIMUM = {
    "vllm.group_port": 1,
    "vllm.start_timeout_s": 0,
    "vllm.concurrency": 1,
    "vllm.tensor_parallel": 1,
}
