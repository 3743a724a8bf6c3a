"""Checks of namespaces: whether a jail's can be made here, tried for real."""

from __future__ import annotations

from sandbox_server.backends import BackendError
from sandbox_server.backends.nsjail import find_nsjail
from sandbox_server.doctor.check import Check, Host

# What nsjail does first: all namespaces, an id map, and a mount in them. Says which failed.
_TRY = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
user, group = os.geteuid(), os.getegid()
def check(result, what):
    if result != 0:
        sys.exit(what + " " + errno.errorcode.get(ctypes.get_errno(), "?"))
flags = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
check(libc.unshare(flags), "unshare")
try:
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write(f"0 {user} 1")
    open("/proc/self/gid_map", "w").write(f"0 {group} 1")
except OSError as error:
    sys.exit("map " + errno.errorcode.get(error.errno, "?"))
check(libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None), "mount")
"""

_IN_CONTAINER = (
    "start the container with a seccomp profile that adds clone, unshare, mount, umount2, "
    "pivot_root and sethostname, as this project's own (compose.yaml), or serve with --backend "
    "docker on its host"
)


def user_namespaces(host: Host) -> Check:
    """Make a jail's namespaces in a child."""
    name = "user namespaces"
    most = host.text("/proc/sys/user/max_user_namespaces")
    if most == "0":
        return Check(name, False, "none allowed", "sysctl -w user.max_user_namespaces=10000")
    if host.user != 0 and host.text("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        remedy = "sysctl -w kernel.unprivileged_userns_clone=1"
        return Check(name, False, "for root only", remedy)
    said = host.python(_TRY)
    if said.status == 0:
        return Check(name, True, f"made all seven in a child; at most {most or 'unknown'}")
    last = said.output.splitlines()[-1] if said.output else f"status {said.status}"
    what, _, why = last.partition(" ")
    if why == "ENOSPC":
        remedy = "sysctl -w user.max_user_namespaces=10000, and the other user.max_*_namespaces"
    elif why in ("EINVAL", "ENOSYS"):
        remedy = "use a kernel with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS"
    elif host.in_container:
        remedy = _IN_CONTAINER
    elif what in ("map", "mount"):
        remedy = _app_armor_remedy()
    else:
        remedy = (
            "let this user make them: sysctl -w kernel.unprivileged_userns_clone=1, or what "
            "this system's own policy (a seccomp filter, SELinux) asks for"
        )
    return Check(name, False, f"refused: {last}", remedy)


def app_armor(host: Host) -> Check:
    """Ubuntu's AppArmor takes the capabilities from what an ordinary user's namespaces hold.

    Whether that stops a jail is what `user_namespaces` tries; this says why.
    """
    if host.text("/sys/module/apparmor/parameters/enabled") != "Y":
        return Check("AppArmor", True, "not in force")
    profile = host.text("/proc/self/attr/apparmor/current") or "unconfined"
    if not profile.startswith("unconfined") and host.in_container:
        return Check(
            "AppArmor",
            False,
            f"this container's profile is {profile}, which refuses mounts",
            "docker run --security-opt apparmor=unconfined",
            required=False,
        )
    restricted = host.text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"
    if restricted and host.user != 0 and profile.startswith("unconfined"):
        return Check(
            "AppArmor",
            False,
            "restricts user namespaces of ordinary users",
            _app_armor_remedy(),
            required=False,
        )
    return Check("AppArmor", True, f"profile {profile}")


def _app_armor_remedy() -> str:
    try:
        nsjail = find_nsjail()
    except BackendError:
        nsjail = "/usr/bin/nsjail"
    return (
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or let nsjail alone: "
        "printf 'abi <abi/4.0>,\\nprofile spadework %s flags=(unconfined) { userns, }\\n' "
        f"{nsjail} > /etc/apparmor.d/spadework && apparmor_parser -r /etc/apparmor.d/spadework"
    )
