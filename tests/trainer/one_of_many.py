"""A run, as one of its processes: `python -m tests.trainer.one_of_many FOLDER OVERRIDE...`."""

import asyncio
import sys
import warnings
from pathlib import Path

import torch

from tests.trainer.fakes import FakeDesigner, FakeSandboxClient
from tests.trainer.test_run import SUITE, configuration
from trainer import processes
from trainer.following import follow
from trainer.run import run


class FailingDesigner(FakeDesigner):
    """Goes away when training begins."""

    async def write(self, writer, n, step, progress=None):
        raise RuntimeError("no designer")


def main(folder: str, *overrides: str) -> None:
    failing = "--fail" in overrides
    overrides = tuple(text for text in overrides if text != "--fail")
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    config = configuration(Path(folder), *overrides)
    if not processes.leads():
        follow(config)
        return
    client = FakeSandboxClient()
    designer = FailingDesigner(client) if failing else FakeDesigner(client)
    asyncio.run(run(config, client, designer, SUITE, resume=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
