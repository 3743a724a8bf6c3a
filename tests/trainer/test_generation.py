import asyncio
import copy
import json
import math
import random

import pytest
import torch

from tests.trainer.fakes import completions
from trainer.generation import GenerationRequest
from trainer.generation_queue import GenerationQueue
from trainer.grammar import Grammar
from trainer.transformers_engine import KEPT_BLOCKS, TransformersEngine, _drawn

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "f": {"enum": ["maze", "bandit"]},
            "n": {"type": "integer", "enum": [2, 3]},
        },
        "required": ["f", "n"],
        "additionalProperties": False,
    }
)


def test_tokenizer_round_trips_and_keeps_its_template(small_model, tmp_path):
    tokenizer = small_model[1]
    text = 'Line 1\n{"a": [1, 2]} ~!'
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer(text)["input_ids"]) == len(text)
    tokenizer.save_pretrained(tmp_path)
    again = type(tokenizer).from_pretrained(tmp_path)
    assert again.chat_template == tokenizer.chat_template
    assert again(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_a_json_schema_is_obeyed_by_random_weights(generator, chat):
    requests = [GenerationRequest(chat.first("x"), 60, 1.0, Grammar(json_schema=SCHEMA))] * 8
    found = completions(generator, requests)
    values = [json.loads(chat.text(c.token_ids)) for c in found]
    assert all(v["f"] in ("maze", "bandit") and v["n"] in (2, 3) for v in values)
    assert all(c.ended for c in found)


def test_only_tokens_with_a_choice_are_decisions(generator, chat):
    request = GenerationRequest(chat.first("x"), 60, 1.0, Grammar(json_schema=SCHEMA))
    (completion,) = completions(generator, [request])
    decided = [
        chat.text([token])
        for token, free in zip(completion.token_ids, completion.free, strict=True)
        if free
    ]
    assert len(decided) == 2
    assert decided[0] in "mb"
    assert decided[1] in "23"


def test_rows_with_and_without_grammar_share_a_batch(generator, chat):
    choice = Grammar(choices=("U", "D"))
    requests = [
        GenerationRequest(chat.first("x"), 1, 1.0, choice if i % 2 else None) for i in range(40)
    ]
    found = completions(generator, requests)
    texts = [chat.text(c.token_ids) for c in found]
    assert {t for t in texts[1::2]} == {"U", "D"}
    assert not set(texts[::2]) <= {"U", "D"}


def test_longer_choices_are_kept_whole(generator, chat):
    choices = Grammar(choices=("north", 'say "hi"'))
    requests = [GenerationRequest(chat.first("x"), 20, 1.0, choices)] * 10
    texts = {chat.text(c.token_ids) for c in completions(generator, requests)}
    assert texts == set(choices.choices)


def test_cached_contexts_give_the_same_probabilities_as_reading_everything(
    small_model, generator, chat
):
    model = small_model[0]
    generator.begin(1)
    contexts = {str(i): chat.first("a" * i + "!") for i in range(3, 9)}
    for turn in range(4):
        contexts.pop(str(3 + turn))
        if turn == 2:  # a new row joins running ones
            contexts["late"] = chat.first("something else entirely")
        requests = [GenerationRequest(c, 2, key=k) for k, c in contexts.items()]
        for (key, context), completion in zip(
            list(contexts.items()), completions(generator, requests), strict=True
        ):
            with torch.no_grad():
                logits = model(torch.tensor([context + completion.token_ids])).logits[0]
            expected = logits.log_softmax(-1)[len(context) - 1 :]
            for place, token in enumerate(completion.token_ids):
                assert completion.logprobs[place] == pytest.approx(
                    expected[place, token].item(), abs=1e-4
                )
            text = chat.next("q" * (len(key) + turn), ended=completion.ended)
            contexts[key] = context + completion.token_ids + text


@pytest.fixture
def read(monkeypatch):
    """How many tokens each pass has read."""
    counts = []
    forward = TransformersEngine._forward

    def counting(engine, block, rows):
        counts.append(sum(len(row.pending) for row in rows))
        return forward(engine, block, rows)

    monkeypatch.setattr(TransformersEngine, "_forward", counting)
    return counts


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_context_is_read_once_in_whatever_company_it_goes_on(generator, chat, read, parts):
    keys = [f"row {n}" for n in range(14)]
    contexts = {key: chat.first("something long " * 3) for key in keys}
    whole = len(contexts[keys[0]])
    for turn in range(3):
        rng = random.Random(turn)
        rng.shuffle(keys)
        read.clear()
        for part in range(parts):
            company = keys[part::parts]
            requests = [GenerationRequest(contexts[key], 1, key=key) for key in company]
            for key, completion in zip(company, completions(generator, requests), strict=True):
                contexts[key] = contexts[key] + completion.token_ids + chat.next("!", ended=False)
        # Whole contexts once; then only what is new of each.
        assert (sum(read) == 14 * whole) if turn == 0 else (sum(read) < 14 * whole / 2)
    assert len(generator._engine._kept) == 14
    assert len({id(block) for block, _ in generator._engine._kept.values()}) <= KEPT_BLOCKS
    for key in keys:
        generator.forget(key)
    assert not generator._engine._kept


async def test_rows_join_while_a_long_completion_is_sampled_and_leave_before_it_ends(
    small_model, chat
):
    generator = GenerationQueue(TransformersEngine(*small_model))
    generator.begin(3)
    long = asyncio.create_task(generator.generate(GenerationRequest(chat.first("a"), 150)))
    joined = 0
    while not long.done():
        short = await generator.generate(GenerationRequest(chat.first("b" * (joined % 7)), 2))
        joined += not long.done()
        assert len(short.token_ids) <= 2
    assert joined >= 5
    model = small_model[0]
    completion = long.result()
    context = chat.first("a")
    with torch.no_grad():
        logits = model(torch.tensor([context + completion.token_ids])).logits[0]
    expected = logits.log_softmax(-1)[len(context) - 1 :]
    chosen = [expected[n, token].item() for n, token in enumerate(completion.token_ids)]
    assert completion.logprobs == pytest.approx(chosen, abs=1e-4)


async def test_what_a_row_draws_does_not_depend_on_its_company(generator, chat):
    def request(n):
        return GenerationRequest(chat.first("x" * n), 12, stream=f"play {n}")

    generator.begin(5)
    alone = [await generator.generate(request(n)) for n in range(6)]
    generator.begin(5)
    order = [4, 0, 5, 2, 1, 3]
    together = await asyncio.gather(*(generator.generate(request(n)) for n in order))
    for n, completion in zip(order, together, strict=True):
        assert completion.token_ids == alone[n].token_ids
    generator.begin(6)
    assert (await generator.generate(request(0))).token_ids != alone[0].token_ids


def test_tokens_are_drawn_as_often_as_they_are_likely():
    likely = torch.tensor([0.5, 0.0, 0.2, 0.3, 0.0])
    rngs = [random.Random(n) for n in range(4000)]
    drawn = _drawn(likely.log().expand(4000, -1), rngs)
    shares = torch.bincount(drawn, minlength=5) / 4000
    assert shares[1] == shares[4] == 0
    assert torch.allclose(shares, likely, atol=4 * 0.5 / math.sqrt(4000))


def test_sampling_repeats_from_its_seed(generator, chat):
    requests = [GenerationRequest(chat.first("x"), 8) for _ in range(4)]
    generator.begin(5)
    first = [c.token_ids for c in completions(generator, requests)]
    generator.begin(5)
    assert [c.token_ids for c in completions(generator, requests)] == first


def test_greedy_takes_the_likeliest(small_model, generator, chat):
    prompt = chat.first("x")
    (completion,) = completions(generator, [GenerationRequest(prompt, 1, temperature=0.0)])
    with torch.no_grad():
        logits = small_model[0](torch.tensor([prompt])).logits[0, -1]
    assert completion.token_ids == [logits.argmax().item()]


def test_a_grammar_that_does_not_compile_is_named(generator, chat):
    request = GenerationRequest(chat.first("x"), 4, 1.0, Grammar(json_schema='{"type": "maze"}'))
    with pytest.raises(ValueError, match="grammar"):
        completions(generator, [request])


def test_exploration_draws_evenly_and_says_how_likely_the_token_was(small_model, chat):
    model, tokenizer = copy.deepcopy(small_model[0]), small_model[1]
    up, down = (tokenizer(text)["input_ids"][0] for text in "UD")
    head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    head.bias.data[up] = 30.0
    model.set_output_embeddings(head)
    generator = GenerationQueue(TransformersEngine(model, tokenizer))
    grammar = Grammar(choices=("U", "D"))
    sure = completions(generator, [GenerationRequest(chat.first("x"), 1, 1.0, grammar)] * 50)
    assert {c.token_ids[0] for c in sure} == {up}
    request = GenerationRequest(chat.first("x"), 1, 1.0, grammar, explore=0.5)
    exploring = completions(generator, [request] * 50)
    assert {c.token_ids[0] for c in exploring} == {up, down}
    for completion in exploring:
        expected = 0.75 if completion.token_ids == [up] else 0.25
        assert completion.logprobs[0] == pytest.approx(math.log(expected), abs=1e-4)
