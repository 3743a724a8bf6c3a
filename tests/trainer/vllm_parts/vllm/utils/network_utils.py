"""See the package."""


def get_ip() -> str:
    """Of this machine, as the server's workers know it."""
    return "127.0.0.1"
