"""Builds the image from what is there: no image registry, and no network in the build.

The base is a Debian root made with mmdebstrap; the dependencies are wheels in the context.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
# The base stays in the daemon's store: making it takes half a minute.
BASE, SUITE, PYTHON = "spadework/test-base:bookworm", "bookworm", "3.11"
BUILD_STAGE, LABEL = "spadework.stage=build", "spadework.test"


def build(client: Any, tag: str) -> None:
    """Build the image of the Dockerfile and give it a name."""
    _ensure_base(client)
    with tempfile.TemporaryDirectory() as context:
        _fill(Path(context))
        client.images.build(
            path=context,
            tag=tag,
            network_mode="none",
            rm=True,
            labels={LABEL: "server"},
            buildargs={
                "BASE_IMAGE": BASE,
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": "/src/wheels",
            },
        )
    for left in (BUILD_STAGE, f"{LABEL}=server"):
        client.images.prune(filters={"label": left, "dangling": True})


def _ensure_base(client: Any) -> None:
    if client.images.list(BASE):
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "root.tar"
        command = ["mmdebstrap", "--quiet", "--variant=minbase"]
        command += ["--include=python3-venv,libstdc++6", SUITE, str(archive)]
        subprocess.run(command, check=True)
        repository, tag = BASE.split(":")
        client.api.import_image_from_file(str(archive), repository=repository, tag=tag)


def _fill(context: Path) -> None:
    """What .dockerignore lets in, the Dockerfile, and wheels."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    names = [line.removeprefix("!") for line in lines if line.startswith("!")]
    for name in ["Dockerfile", ".dockerignore", *names]:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, context / name)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--python-version", PYTHON]
    subprocess.run(
        [*command, "--dest", str(context / "wheels"), "--", *_requirements()], check=True
    )


def _requirements() -> list[str]:
    """What the package needs on the base's interpreter, and to be built at all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = map(Requirement, project["project"]["dependencies"])
    there = {"python_version": PYTHON}
    chosen = [r for r in needed if r.marker is None or r.marker.evaluate(there)]
    return [*(f"{r.name}{r.specifier}" for r in chosen), *project["build-system"]["requires"]]
