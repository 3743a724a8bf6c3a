"""Builds what a server would build at its first start: `python -m sandbox_server.prepare NAME...`.

For images: their server runs as a user who cannot write where the interpreter of its jails
lies, on a root that is read-only.
"""

from __future__ import annotations

import sys

from sandbox_server import cache, runtime


def main() -> int:
    try:
        for name in sys.argv[1:]:
            print(runtime.ensure(name).root)
    except runtime.RuntimeBuildError as error:
        print(f"sandbox_server.prepare: {error}", file=sys.stderr)
        return 1
    print(cache.worker_folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
