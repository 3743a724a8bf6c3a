"""The image of the docker backend: empty folders, and links into the runtime mounted there.

A runtime is a folder that any user id can read, and the daemon mounts it as it is: no copy
of it, and nothing of it to keep up to date, in the daemon's store. What is left for an image
is to be the root under the mounts, which takes a few hundred bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
from typing import Any

from sandbox_server.runtime import WORKER

REPOSITORY = "spadework/jail"
LABEL = "spadework.image"

# Where a container finds what the backend mounts; worker/container.py has the same names.
RUNTIME, CONTROL = "/runtime", "/control"

_MOUNT_POINTS = (RUNTIME, WORKER, CONTROL, "/dev", "/etc", "/proc", "/sys", "/tmp")
# What may be at the top of a runtime: the interpreter's path is then the same before and
# after the zygote makes the runtime its root.
_LINKS = ("bin", "lib", "lib32", "lib64", "opt", "usr")


def _archive() -> bytes:
    """The image's root as a tar archive; always the same bytes."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for folder in _MOUNT_POINTS:
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in _LINKS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"{RUNTIME}/{name}".lstrip("/")
            archive.addfile(entry)
    return target.getvalue()


def name() -> str:
    """The image's name: it says what is in it, so an image of that name is the right one."""
    return f"{REPOSITORY}:{hashlib.sha256(_archive()).hexdigest()[:16]}"


def ensure(client: Any) -> str:
    """Have the image in the daemon's store.

    Returns:
        Its name.
    """
    import docker.errors

    wanted = name()
    try:
        client.images.get(wanted)
    except docker.errors.ImageNotFound:
        repository, tag = wanted.split(":")
        client.api.import_image_from_data(
            _archive(), repository=repository, tag=tag, changes=[f"LABEL {LABEL}=jail"]
        )
    return wanted


def tidy(client: Any) -> None:
    """Remove the images of other versions; one that a container uses stays."""
    import docker.errors

    for image in client.images.list(filters={"label": f"{LABEL}=jail"}):
        for tag in image.tags:
            if tag != name():
                with contextlib.suppress(docker.errors.APIError):
                    client.images.remove(tag)
