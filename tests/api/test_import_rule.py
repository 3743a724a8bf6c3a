"""Who may import whom, read from the source of every module."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Package -> the packages of this project that it may import.
ALLOWED = {
    "proto/sandbox_api": {"sandbox_api"},
    "sandbox_server": {"sandbox_api", "sandbox_server"},
    "designer": {"sandbox_api", "designer"},
    "trainer": {"sandbox_api", "trainer"},
    "spadework": {"sandbox_api", "sandbox_server", "designer", "trainer", "spadework"},
}
OURS = set().union(*ALLOWED.values())
TORCH_ONLY_UNDER_TRAINER = {"torch", "transformers", "trl", "accelerate", "peft", "datasets"}
# Reached only in a runtime that has it, for programs with an action space.
RUNTIME_MAY_BRING = {"numpy"}
API_MAY_IMPORT = {"grpc", "google", "sandbox_api"}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Top-level names of the modules a file imports anywhere in it, with the line."""
    package = _package(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield (package if node.level else (node.module or "").split(".")[0]), node.lineno


def _package(path: Path) -> str:
    relative = path.relative_to(ROOT).parts
    return relative[1] if relative[0] == "proto" else relative[0]


def offences(folder: str, is_allowed) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(folder)
        for name, line in imports(path)
        if not is_allowed(name)
    ]


@pytest.mark.parametrize("folder", ALLOWED)
def test_packages_import_one_way(folder: str):
    assert modules(folder), f"{folder} has no modules"
    assert offences(folder, lambda name: name not in OURS or name in ALLOWED[folder]) == []


@pytest.mark.parametrize("folder", [folder for folder in ALLOWED if folder != "trainer"])
def test_torch_is_imported_only_under_trainer(folder: str):
    assert offences(folder, lambda name: name not in TORCH_ONLY_UNDER_TRAINER) == []


def test_the_contract_imports_only_grpc_and_protobuf():
    def is_allowed(name: str) -> bool:
        return name in API_MAY_IMPORT or name in sys.stdlib_module_names

    assert offences("proto/sandbox_api", is_allowed) == []


def test_the_worker_imports_only_the_standard_library():
    def is_allowed(name: str) -> bool:
        return name == "sandbox_server" or name in sys.stdlib_module_names | RUNTIME_MAY_BRING

    assert offences("sandbox_server/worker", is_allowed) == []


def test_the_worker_imports_of_our_packages_only_itself():
    bad = []
    for path in modules("sandbox_server/worker"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            bad += [
                f"{path.relative_to(ROOT)}:{node.lineno} imports {name}"
                for name in names
                if name.split(".")[0] == "sandbox_server"
                and not name.startswith("sandbox_server.worker")
            ]
    assert bad == []


def test_the_worker_loads_without_any_runtime_package():
    # What a runtime may bring is imported only inside functions.
    for path in modules("sandbox_server/worker"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = {n for node in tree.body for n in _names(node)}
        assert not top & RUNTIME_MAY_BRING, path


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]}
    return set()
