"""Make a token for a tenant of a sandbox server.

The token goes to standard output: keep it where only its client can read it, and set
SPADEWORK_TOKEN to it there. What the server needs of it, a hash, goes to standard error, as an
entry for the file that `spadework serve --tenants` reads.
"""

from __future__ import annotations

import argparse

SUMMARY = "make a token for a tenant of a server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the tenant's name: lower-case letters, digits, - and _")
    parser.add_argument("--json", action="store_true", help="both as one JSON object")


def run(args: argparse.Namespace) -> int:
    import secrets
    import sys

    from sandbox_server.authentication import token_sha256
    from sandbox_server.tenants import is_name
    from spadework import console

    if not is_name(args.name):
        raise console.UsageError(
            f"{args.name!r} is no tenant's name: lower-case letters, digits, - and _, 32 at most"
        )
    token = secrets.token_urlsafe(32)
    if args.json:
        entry = {"name": args.name, "token": token, "token_sha256": token_sha256(token)}
        console.print_json(entry)
    else:
        print(token)
        print(f'[tenant.{args.name}]\ntoken_sha256 = "{token_sha256(token)}"', file=sys.stderr)
    return console.OK
