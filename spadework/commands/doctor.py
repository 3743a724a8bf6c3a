"""Check what this machine offers: what the sandbox needs, and whether it is in force.

Exits with 1 if a required check failed; each failed check says what to do.
"""

from __future__ import annotations

import argparse

from spadework.sandbox import BACKENDS

SUMMARY = "check that this machine can isolate environments"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="nsjail",
        help="what the server would be started with (default: nsjail)",
    )
    parser.add_argument(
        "--max-episodes", type=int, default=6_000, metavar="N", help="the same (default: 6000)"
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(args: argparse.Namespace) -> int:
    from sandbox_server.config import ServerConfig
    from sandbox_server.doctor import run_checks
    from spadework import console

    checks = run_checks(ServerConfig(backend=args.backend, max_episodes=args.max_episodes))
    failed = [check for check in checks if not check.ok and check.required]
    if args.json:
        console.print_json(
            {
                "ok": not failed,
                "checks": [
                    {
                        "name": check.name,
                        "ok": check.ok,
                        "required": check.required,
                        "detail": check.detail,
                        "remedy": check.remedy,
                    }
                    for check in checks
                ],
            }
        )
    else:
        rows = [
            (
                check.name,
                "ok" if check.ok else "FAILED" if check in failed else "missing",
                check.detail
                if check.ok or not check.remedy
                else f"{check.detail}\n{check.remedy}",
            )
            for check in checks
        ]
        console.print_table("", ("check", "result", "detail"), rows)
        if failed:
            console.print_error(f"{len(failed)} required check(s) failed")
    return console.NEGATIVE if failed else console.OK
