"""What a round of writing will ask for, before anything is asked: tokens and money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from designer import opinions
from trainer.budget import MESSAGE_TOKENS, TEMPLATE_TOKENS, most_prompt_tokens

if TYPE_CHECKING:
    from designer import DesignRequest, WritingSettings
    from trainer.endpoint_config import EndpointConfig

# English and Python have about four bytes a token, in the tokenizers of common models.
BYTES_A_TOKEN = 4
MOST_BYTES_A_TOKEN = 8
# What models write, by what was seen of them: a program, a specification, a hint.
PROGRAM_TOKENS = 1_200
SPEC_TOKENS = 40
HINT_TOKENS = 80
OPINION_TOKENS = 60
# Of the program that a specification becomes.
MOST_COMPILED_BYTES = 8_000
# Drafts that a gate refuses and a repair is asked for.
REFUSED_SHARE = 0.5
# The words around a program in a prompt for a hint or an opinion, and a finding in a repair's.
SHOWN_PROMPT_TOKENS = 120
FINDING_TOKENS = 300
MOST_FINDING_TOKENS = 12_000


@dataclass(frozen=True)
class Expected:
    """One kind of request.

    Attributes:
        requests: How many, at most.
        about_in: Prompt tokens of all of them, as likely as not.
        most_in: Prompt tokens, at the very most.
        about_out: Completion tokens, as likely as not.
        most_out: Completion tokens that they cannot exceed.
    """

    what: str
    requests: int
    about_in: int
    most_in: int
    about_out: int
    most_out: int


def expected(requests: Sequence[DesignRequest], settings: WritingSettings) -> list[Expected]:
    """What drafts, hints, repairs and opinions will take, at least as much as is known."""
    n = len(requests)
    free = [request for request in requests if request.method == "free_code"]
    written = min(PROGRAM_TOKENS if free else SPEC_TOKENS, settings.max_tokens)
    hint = min(HINT_TOKENS, settings.hint_max_tokens)
    about_in = sum(_bytes(request) // BYTES_A_TOKEN for request in requests)
    most_in = sum(most_prompt_tokens(r.messages, r.json_schema) for r in requests)
    # A completion that comes back in a prompt is counted in bytes again; few texts have more.
    most_back = settings.max_tokens * MOST_BYTES_A_TOKEN
    rows = [Expected("drafts", n, about_in, most_in, n * written, n * settings.max_tokens)]
    rounds = settings.repair_rounds
    mended = int(sum(n * REFUSED_SHARE**number for number in range(1, rounds + 1)))
    # A program is shown to whoever writes its hint, and to whoever is asked for an opinion.
    shown = n + n * rounds
    around = SHOWN_PROMPT_TOKENS * BYTES_A_TOKEN + TEMPLATE_TOKENS + 2 * MESSAGE_TOKENS
    program = written if free else MOST_COMPILED_BYTES // BYTES_A_TOKEN
    about_shown = (n + mended) * (program + SHOWN_PROMPT_TOKENS)
    most_shown = shown * ((most_back if free else MOST_COMPILED_BYTES) + around)
    if free:
        most_out = shown * settings.hint_max_tokens
        rows.append(
            Expected("hints", shown, about_shown, most_shown, (n + mended) * hint, most_out)
        )
    if settings.opinions:
        about_out = (n + mended) * OPINION_TOKENS
        most_out = shown * opinions.OPINION_TOKENS
        rows.append(Expected("opinions", shown, about_shown, most_shown, about_out, most_out))
    if rounds:
        rows.append(
            Expected(
                "repairs",
                n * rounds,
                mended * (about_in // max(1, n) + written + FINDING_TOKENS),
                rounds * (most_in + n * (most_back + MOST_FINDING_TOKENS)),
                mended * written,
                n * rounds * settings.max_tokens,
            )
        )
    return rows


def estimate_json(rows: Sequence[Expected], config: EndpointConfig) -> dict[str, Any]:
    """Sums of the rows, and what they cost where prices are known."""
    about_in, most_in = sum(r.about_in for r in rows), sum(r.most_in for r in rows)
    about_out, most_out = sum(r.about_out for r in rows), sum(r.most_out for r in rows)
    values: dict[str, Any] = {
        "requests": sum(row.requests for row in rows),
        "tokens_in_about": about_in,
        "tokens_in_at_most": most_in,
        "tokens_out_about": about_out,
        "tokens_out_at_most": most_out,
    }
    if config.price_in or config.price_out:
        values["money_about"] = config.money(about_in, about_out)
        values["money_at_most"] = config.money(most_in, most_out)
    return values


def _bytes(request: DesignRequest) -> int:
    return sum(len(message["content"].encode()) for message in request.messages)
