"""Attacks on the network, and on the one socket that an episode has."""

from __future__ import annotations

from tests.security.attack import Attack

NETWORK = "no network, no sockets but its own"

# What a socket that is on no list fails with.
_REFUSED = r"refused: PermissionError EPERM"

# family, kind, protocol
_SOCKETS = {
    "TCP": (2, 1, 0),
    "UDP": (2, 2, 0),
    "TCP over IPv6": (10, 1, 0),
    "raw IP": (2, 3, 255),
    "ICMP without privilege": (2, 2, 1),
    "SCTP": (2, 1, 132),
    "Unix stream": (1, 1, 0),
    "Unix datagram": (1, 2, 0),
    "Unix packets": (1, 5, 0),
    "netlink route": (16, 3, 0),
    "netlink audit": (16, 3, 9),
    "netlink netfilter": (16, 3, 12),
    "netlink kernel events": (16, 2, 15),
    "raw packets": (17, 3, 3),
    "vsock": (40, 1, 0),
    "Bluetooth": (31, 3, 1),
    "CAN": (29, 3, 1),
    "kernel crypto": (38, 5, 0),
    "XDP": (44, 3, 0),
    "TIPC": (30, 1, 0),
    "RDS": (21, 5, 0),
    "keys of IPsec": (15, 3, 2),
    "X.25": (9, 5, 0),
}

# Its own socket, in the forms that would do harm: connect, bind, listen, options, messages.
_OWN_SOCKET = """
import socket
own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(3))
"""

ATTACKS = (
    *(
        Attack(
            f"a socket: {what}", NETWORK,
            f"import socket\nreturn said(attempt(socket.socket, *{numbers!r}))",
            says=_REFUSED,
        )
        for what, numbers in _SOCKETS.items()
    ),
    Attack(
        "a pair of sockets", NETWORK,
        "import socket\nreturn said(attempt(socket.socketpair))",
        says=_REFUSED,
    ),
    Attack(
        "connects to the server's own socket", NETWORK,
        _OWN_SOCKET + "return said(attempt(own.connect, json.loads(action)['socket']))",
        says=_REFUSED,
    ),
    Attack(
        "connects to an abstract socket", NETWORK,
        _OWN_SOCKET + "return said(attempt(own.connect, '\\0spadework'))",
        says=_REFUSED,
    ),
    Attack(
        "connects to the loopback address", NETWORK,
        "import socket\n"
        "return said(attempt(socket.create_connection, ('127.0.0.1', 50061), 1))",
        says=_REFUSED,
    ),
    Attack(
        "resolves a name", NETWORK,
        "import socket\nreturn said(attempt(socket.getaddrinfo, 'localhost', 80))",
        says=r"refused: gaierror.*|went through: .*127\.0\.0\.1.*",
    ),
    Attack(
        "binds its own socket to a name", NETWORK,
        _OWN_SOCKET + "return said(attempt(own.bind, '/tmp/x'))",
        says=_REFUSED,
    ),
    Attack(
        "listens and accepts on its own socket", NETWORK,
        _OWN_SOCKET + "return said([attempt(own.listen), attempt(own.accept)])",
        says=rf"\['{_REFUSED}', '{_REFUSED}'\]",
    ),
    Attack(
        "asks its own socket who is at the other end", NETWORK,
        _OWN_SOCKET + "return said([attempt(own.getpeername), "
        "attempt(own.getsockopt, socket.SOL_SOCKET, 17, 12)])",
        says=rf"\['{_REFUSED}', '{_REFUSED}'\]",
    ),
    Attack(
        "makes its own socket's buffer large", NETWORK,
        _OWN_SOCKET + "return said(attempt(own.setsockopt, socket.SOL_SOCKET, 7, 1 << 30))",
        says=_REFUSED,
    ),
    Attack(
        "shuts its own socket down for both", NETWORK,
        _OWN_SOCKET + "return said(attempt(own.shutdown, 2))",
        says=_REFUSED,
    ),
    Attack(
        "passes a descriptor to the supervisor", NETWORK,
        _OWN_SOCKET + "return said(attempt(socket.send_fds, own, [b'x'], [0]))",
        says=_REFUSED,
    ),
    Attack(
        "sends and receives by the socket calls", NETWORK,
        _OWN_SOCKET + "return said([attempt(own.send, b'x'), attempt(own.recv, 9)])",
        says=rf"\['{_REFUSED}', '{_REFUSED}'\]",
    ),
    Attack(
        "opens a connection through asyncio", NETWORK,
        "import asyncio\nreturn said(attempt(asyncio.run, asyncio.sleep(0)))",
        says=_REFUSED,
    ),
    Attack(
        "makes a device of the network", NETWORK,
        "import fcntl\nreturn said(attempt(fcntl.ioctl, 3, 0x8927, bytes(40)))",
        says=r"refused: OSError ENOTTY",
    ),
    Attack(
        "pushes bytes into a terminal", NETWORK,
        "import fcntl\nreturn said(attempt(fcntl.ioctl, 0, 0x5412, b'x'))",
        says=r"refused: OSError ENOTTY",
    ),
)  # fmt: skip
