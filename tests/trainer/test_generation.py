import copy
import json
import math

import pytest
import torch

from trainer.generation import GenerationRequest, TransformersGenerator
from trainer.grammar import Grammar

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
    completions = generator.generate(requests)
    values = [json.loads(chat.text(c.token_ids)) for c in completions]
    assert all(v["f"] in ("maze", "bandit") and v["n"] in (2, 3) for v in values)
    assert all(c.ended for c in completions)


def test_only_tokens_with_a_choice_are_decisions(generator, chat):
    request = GenerationRequest(chat.first("x"), 60, 1.0, Grammar(json_schema=SCHEMA))
    (completion,) = generator.generate([request])
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
    completions = generator.generate(requests)
    texts = [chat.text(c.token_ids) for c in completions]
    assert {t for t in texts[1::2]} == {"U", "D"}
    assert not set(texts[::2]) <= {"U", "D"}


def test_longer_choices_are_kept_whole(generator, chat):
    choices = Grammar(choices=("north", 'say "hi"'))
    requests = [GenerationRequest(chat.first("x"), 20, 1.0, choices)] * 10
    texts = {chat.text(c.token_ids) for c in generator.generate(requests)}
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
            list(contexts.items()), generator.generate(requests), strict=True
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


def test_each_cohort_finds_its_own_cache_again(small_model, chat, monkeypatch):
    generator = TransformersGenerator(*small_model, cohorts=2)
    read = []
    forward = generator._forward

    def counting(cached, pending):
        read.append(sum(map(len, pending)))
        return forward(cached, pending)

    monkeypatch.setattr(generator, "_forward", counting)
    contexts = {f"{c}{n}": chat.first("something long " * 3) for c in "ab" for n in range(3)}
    for turn in range(3):
        for cohort in "ab":
            keys = [key for key in contexts if key[0] == cohort]
            read.clear()
            requests = [GenerationRequest(contexts[key], 1, key=key) for key in keys]
            for key, completion in zip(keys, generator.generate(requests), strict=True):
                contexts[key] = contexts[key] + completion.token_ids + chat.next("!", ended=False)
            # Whole contexts once; then only what is new of each.
            whole = 3 * len(chat.first("something long " * 3))
            assert (read[0] == whole) if turn == 0 else (read[0] < whole)


def test_sampling_repeats_from_its_seed(generator, chat):
    requests = [GenerationRequest(chat.first("x"), 8) for _ in range(4)]
    generator.begin(5)
    first = [c.token_ids for c in generator.generate(requests)]
    generator.begin(5)
    assert [c.token_ids for c in generator.generate(requests)] == first


def test_greedy_takes_the_likeliest(small_model, generator, chat):
    prompt = chat.first("x")
    (completion,) = generator.generate([GenerationRequest(prompt, 1, temperature=0.0)])
    with torch.no_grad():
        logits = small_model[0](torch.tensor([prompt])).logits[0, -1]
    assert completion.token_ids == [logits.argmax().item()]


def test_a_grammar_that_does_not_compile_is_named(generator, chat):
    request = GenerationRequest(chat.first("x"), 4, 1.0, Grammar(json_schema='{"type": "maze"}'))
    with pytest.raises(ValueError, match="grammar"):
        generator.generate([request])


def test_exploration_draws_evenly_and_says_how_likely_the_token_was(small_model, chat):
    model, tokenizer = copy.deepcopy(small_model[0]), small_model[1]
    up, down = (tokenizer(text)["input_ids"][0] for text in "UD")
    head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    head.bias.data[up] = 30.0
    model.set_output_embeddings(head)
    generator = TransformersGenerator(model, tokenizer)
    grammar = Grammar(choices=("U", "D"))
    sure = generator.generate([GenerationRequest(chat.first("x"), 1, 1.0, grammar)] * 50)
    assert {c.token_ids[0] for c in sure} == {up}
    request = GenerationRequest(chat.first("x"), 1, 1.0, grammar, explore=0.5)
    exploring = generator.generate([request] * 50)
    assert {c.token_ids[0] for c in exploring} == {up, down}
    for completion in exploring:
        expected = 0.75 if completion.token_ids == [up] else 0.25
        assert completion.logprobs[0] == pytest.approx(math.log(expected), abs=1e-4)
