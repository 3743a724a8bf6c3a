"""Runtimes: named, read-only Python environments that episodes see.

A runtime is a folder laid out as a root file system: an interpreter copied from the one
that runs the server, the shared libraries that it and its packages load, and nothing
else of the host. A jail binds it at "/", read-only. It is built once, from a pinned
requirements file, into a folder that any user id can read.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from sandbox_server import cache

PYTHON = "/opt/python/bin/python3"
LIBRARY_PATH = "/opt/python/lib"
WORKER = "/spadework"

# Bumped when the layout below changes, so that old folders are not taken for new ones.
_LAYOUT = 1
_SKIPPED = shutil.ignore_patterns(
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "config-*",
    "*.a",
)
_DEVICES = ("null", "zero", "urandom")

# Modules that a zygote imports before it forks, by runtime.
_STDLIB_WARM = [
    "abc",
    "ast",
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "inspect",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "textwrap",
    "time",
    "typing",
    "uuid",
]
WARM_MODULES: dict[str, list[str]] = {
    "stdlib": _STDLIB_WARM,
    "library": [*_STDLIB_WARM, "numpy", "gymnasium", "minigrid", "reasoning_gym"],
}


# Of what went wrong with a build, in an error.
_SAID_CHARACTERS = 500


class RuntimeBuildError(Exception):
    """A runtime could not be built; the message says why and what to do."""


@dataclass(frozen=True)
class Runtime:
    """A built runtime.

    Attributes:
        root: Folder to bind at "/".
        packages: Distributions beyond the standard library, as "name==version".
    """

    name: str
    root: Path
    python_version: str
    packages: tuple[str, ...]

    @property
    def warm_modules(self) -> list[str]:
        return WARM_MODULES.get(self.name, _STDLIB_WARM)

    @property
    def site_packages(self) -> Path:
        return self.root / _site_packages()


def requirements(name: str) -> str:
    """The pinned requirements of a runtime that ships with the server.

    Raises:
        RuntimeBuildError: If there is none of that name.
    """
    source = resources.files("sandbox_server") / "runtimes" / f"{name}.txt"
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or not source.is_file():
        known = sorted(
            p.name.removesuffix(".txt")
            for p in (resources.files("sandbox_server") / "runtimes").iterdir()
            if p.name.endswith(".txt")
        )
        raise RuntimeBuildError(f"no runtime {name!r}; there are {', '.join(known)}")
    return source.read_text()


def ensure(name: str) -> Runtime:
    """Return a runtime, building it first if it is not there.

    Safe to call from several processes at once. Takes seconds for `stdlib`, and a package
    download for the others.

    Raises:
        RuntimeBuildError: If it cannot be built.
    """
    pinned = requirements(name)
    key = hashlib.sha256(
        json.dumps(
            [
                _LAYOUT,
                pinned,
                sys.version,
                sys.base_prefix,
                platform.machine(),
                platform.libc_ver(),
            ]
        ).encode()
    ).hexdigest()[:16]
    folder = cache.cache_folder() / "runtimes"
    root = folder / f"{name}-{platform.python_version()}-{key}"
    # First: where one is there, the folder may well be one that this user cannot write.
    if not cache.hold(root):
        _build_once(root, pinned)
    manifest = json.loads((root / "manifest.json").read_text())
    return Runtime(name, root, manifest["python_version"], tuple(manifest["packages"]))


def _build_once(root: Path, pinned: str) -> None:
    """Build a runtime unless another process does."""
    try:
        cache.make(root.parent)
        lock = (root.parent / f".{root.name}.lock").open("w")
    except OSError as error:
        raise RuntimeBuildError(
            f"there is no {root}, and it cannot be made: {error.strerror}; have somebody make it "
            "who may (python -m sandbox_server.prepare NAME), or name another folder in "
            "SPADEWORK_CACHE"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while not cache.hold(root):
            _build(root, pinned)


def _site_packages() -> str:
    return f"opt/python/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def _build(root: Path, pinned: str) -> None:
    for left in root.parent.glob(f".{root.name}.*"):
        # Whoever holds the lock is the only one that builds: these are of builds that were killed.
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{root.name}.", dir=root.parent))
    try:
        _copy_interpreter(staging)
        packages = _install(staging, pinned)
        _copy_libraries(staging)
        _make_mount_points(staging)
        manifest = {"python_version": platform.python_version(), "packages": packages}
        (staging / "manifest.json").write_text(json.dumps(manifest, indent=1))
        cache.publish(staging, root)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        # The text of shutil's errors is a list of all files.
        raise RuntimeBuildError(
            f"cannot build {root}: {error.strerror or str(error)[:_SAID_CHARACTERS]}; free some "
            "disk, or name another folder in SPADEWORK_CACHE"
        ) from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _copy_interpreter(root: Path) -> None:
    python = root / PYTHON.lstrip("/")
    python.parent.mkdir(parents=True)
    executable = getattr(sys, "_base_executable", sys.executable)
    shutil.copy2(os.path.realpath(executable), python)
    library = root / LIBRARY_PATH.lstrip("/")
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        library / f"python{sys.version_info.major}.{sys.version_info.minor}",
        ignore=_SKIPPED,
    )
    (root / _site_packages()).mkdir(parents=True, exist_ok=True)
    shared = sysconfig.get_config_var("INSTSONAME") or ""
    source = Path(sysconfig.get_config_var("LIBDIR") or "") / shared
    if ".so" in shared and source.is_file():
        shutil.copy2(source, library / shared)


def _install(root: Path, pinned: str) -> list[str]:
    wanted = [
        line for line in pinned.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    if not wanted:
        return []
    target = root / _site_packages()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pinned)
        file.flush()
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-warn-script-location"]
        command += ["--disable-pip-version-check", "--no-deps", "--target", str(target)]
        done = subprocess.run(
            [*command, "-r", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise RuntimeBuildError(
            "pip could not install the runtime's packages; its last words:\n"
            + done.stderr.strip()[-2000:]
        )
    names = sorted(path.name.removesuffix(".dist-info") for path in target.glob("*.dist-info"))
    return ["==".join(name.rsplit("-", 1)) for name in names]


def _copy_libraries(root: Path) -> None:
    """Copy the shared libraries that the runtime's own files resolve to, paths kept."""
    library = root / LIBRARY_PATH.lstrip("/")
    files = [root / PYTHON.lstrip("/"), *library.rglob("*.so"), *library.rglob("*.so.*")]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library)}
    listed = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, env=environment, check=False
    )
    found = set(re.findall(r"(/\S+\.so\S*) \(0x", listed.stdout))
    needed = {Path(path) for path in found if not path.startswith(str(root))}
    # pthread_exit loads it by name, so ldd does not see it.
    needed |= {p.parent / "libgcc_s.so.1" for p in needed if p.name.startswith("libc.so")}
    for path in needed:
        if path.is_file():
            copy = root / str(path).lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def _make_mount_points(root: Path) -> None:
    for folder in ("dev", "tmp", WORKER.lstrip("/")):
        (root / folder).mkdir(exist_ok=True)
    for device in _DEVICES:
        (root / "dev" / device).touch()
