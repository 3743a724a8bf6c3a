"""What every structured family promises: an oracle that wins, variety, determinism, reach."""

from __future__ import annotations

import json
import random

import pytest

from designer.families import (
    FAMILIES,
    SKILLS,
    CompiledSpec,
    SpecError,
    check_spec,
    compile_spec,
    evaluation_suite,
    held_out,
    random_spec,
    spec_schema,
    spec_text,
)

MAX_TURNS = 8
SPECS_A_FAMILY = 25


def load(compiled: CompiledSpec) -> type:
    """Execute a program in this process. Only for programs of our own compiler."""
    namespace: dict[str, object] = {}
    exec(compile(compiled.source, "program", "exec"), namespace)
    (entry,) = [value for name, value in namespace.items() if name.endswith("Env")]
    assert isinstance(entry, type)
    return entry


def play(env, seed: int, policy) -> tuple[list, float, int]:
    """Play one episode; returns the transcript, the episode return and the turns."""
    observation, _ = env.reset(seed=seed)
    transcript: list = [observation]
    while True:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        assert -1.0 <= reward <= 1.0
        transcript.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            return transcript, reward if terminated else 0.0, len(transcript) - 1


def specs(family: str) -> list[CompiledSpec]:
    rng = random.Random(f"specs {family}")
    return [compile_spec(random_spec(rng, family=family)) for _ in range(SPECS_A_FAMILY)]


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    def test_the_oracle_wins_on_every_seed(self, family):
        for compiled in specs(family):
            entry = load(compiled)
            for seed in range(6):
                env = entry(max_turns=MAX_TURNS)
                env.reset(seed=seed)
                actions = iter(env.solution())
                _, episode_return, _ = play(env, seed, lambda _, actions=actions: next(actions))
                assert episode_return == 1.0, (compiled.spec, seed)
                assert env.verify()

    def test_most_of_the_range_passes_what_the_gates_ask(self, family):
        """Distinct starts, an oracle of three steps, and no win for blind policies."""
        rng = random.Random(f"gates {family}")
        passed = 0
        for compiled in specs(family):
            env = load(compiled)(max_turns=MAX_TURNS)
            starts = {env.reset(seed=seed)[0] for seed in range(8)}
            lengths = []
            for seed in range(4):
                env.reset(seed=seed)
                actions = iter(env.solution())
                lengths.append(play(env, seed, lambda _, actions=actions: next(actions))[2])
            blind = [lambda _: "", lambda o: rng.choice(o + "0123456789abcdefgh")]
            blind += [lambda _, move=move: move for move in compiled.moves]
            wins = [
                sum(play(env, seed, policy)[1] > 0.9 for seed in range(20)) for policy in blind
            ]
            passed += len(starts) >= 2 and min(lengths) >= 3 and max(wins) <= 1
        assert passed / SPECS_A_FAMILY >= 0.6

    def test_same_seed_and_actions_give_the_same_transcript(self, family):
        compiled = specs(family)[0]
        transcripts = []
        for salt in range(2):
            random.seed(salt)  # the global generator must not matter
            rng = random.Random(5)
            env = load(compiled)(max_turns=MAX_TURNS)
            transcripts.append(play(env, 3, lambda _, rng=rng: rng.choice(compiled.moves))[0])
        assert transcripts[0] == transcripts[1]

    def test_any_text_is_an_answer(self, family):
        env = load(specs(family)[0])(max_turns=30)
        env.reset(seed=1)
        for action in ["", "x" * 10_000, "\x00\u202e🦆", "\\boxed{", "}{", "None", "-1", " \n"]:
            observation, reward, *_ = env.step(action)
            assert isinstance(observation, str)
            assert -1.0 <= reward <= 1.0

    def test_actions_are_read_boxed_spaced_and_in_either_case(self, family):
        compiled = specs(family)[0]
        env = load(compiled)(max_turns=MAX_TURNS)
        env.reset(seed=2)
        first = env.solution()[0]
        answers = set()
        for form in (first, f"  {first}\n", f"I say \\boxed{{{first}}}!", first.swapcase()):
            env.reset(seed=2)
            answers.add(env.step(form)[:4])
        assert len(answers) == 1

    def test_observations_are_short_and_the_first_names_the_moves(self, family):
        for compiled in specs(family):
            env = load(compiled)(max_turns=MAX_TURNS)
            rng = random.Random(1)
            transcript, *_ = play(
                env, 0, lambda _, rng=rng, moves=compiled.moves: rng.choice(moves)
            )
            first, _, clue = transcript[0].partition("\n\nHINT: ")
            assert compiled.moves in first
            assert clue == (compiled.hint if compiled.spec["c"] else "")
            assert all(len(text) <= 60 for text in [first, *(turn[0] for turn in transcript[1:])])

    def test_moves_of_the_catalogue_are_those_of_the_program(self, family):
        for compiled in specs(family):
            env = load(compiled)(max_turns=MAX_TURNS)
            env.reset(seed=0)
            assert env.moves == compiled.moves

    def test_the_hidden_clue_is_not_in_the_source(self, family):
        for compiled in specs(family):
            line = next(t for t in compiled.source.split("\n") if t.startswith("CLUE = "))
            assert line == f"CLUE = {compiled.hint if compiled.spec['c'] else ''!r}"

    def test_levels_span_the_range(self, family):
        levels = [compiled.level for compiled in specs(family)]
        assert min(levels) < 0.4
        assert max(levels) > 0.5


def test_every_skill_has_a_family():
    assert {family.skill for family in FAMILIES.values()} == set(SKILLS)


def test_specifications_fit_sixty_characters():
    rng = random.Random(0)
    assert max(len(spec_text(random_spec(rng))) for _ in range(500)) <= 60


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"f": "nosuch"},
        {"f": "grid", "n": 4},
        {"f": "grid", "n": 9, "w": 1, "q": 0, "g": 1, "s": 1, "c": 0},
        {"f": "grid", "n": True, "w": 1, "q": 0, "g": 1, "s": 1, "c": 0},
        {"f": "grid", "n": "4", "w": 1, "q": 0, "g": 1, "s": 1, "c": 0},
        {"f": "grid", "n": 4, "w": 1, "q": 0, "g": 1, "s": 1, "c": 0, "z": 1},
    ],
)
def test_a_wrong_specification_is_refused(spec):
    with pytest.raises(SpecError):
        compile_spec(spec)


def test_schema_of_a_skill_holds_its_families_only():
    schema = spec_schema("optim")
    names = {branch["properties"]["f"]["enum"][0] for branch in schema["anyOf"]}
    assert names == {"sort", "trade"}
    with pytest.raises(SpecError):
        spec_schema("juggling")


def test_the_grammar_derives_only_valid_specifications():
    """Random walks through the token masks end in specifications that compile."""
    xgrammar = pytest.importorskip("xgrammar")
    vocabulary = [chr(code) for code in range(32, 127)] + ["<eos>"]
    stop = len(vocabulary) - 1
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[stop]))
    grammar = compiler.compile_json_schema(
        json.dumps(spec_schema()), any_whitespace=False, separators=(",", ":"), strict_mode=True
    )
    rng = random.Random(0)
    mask = xgrammar.allocate_token_bitmask(1, len(vocabulary))
    for _ in range(25):
        matcher = xgrammar.GrammarMatcher(grammar)
        text = ""
        while not matcher.is_terminated():
            matcher.fill_next_token_bitmask(mask)
            row = mask[0].tolist()
            token = rng.choice([t for t in range(stop + 1) if row[t // 32] >> (t % 32) & 1])
            assert matcher.accept_token(token)
            text += "" if token == stop else vocabulary[token]
        spec = json.loads(text)
        check_spec(spec)
        assert spec_text(spec) == text


def test_held_out_worlds_are_a_stable_share_and_ignore_the_public_clue():
    rng = random.Random(0)
    drawn = [random_spec(rng) for _ in range(2000)]
    assert 0.12 < sum(map(held_out, drawn)) / len(drawn) < 0.18
    assert all(held_out({**spec, "c": 0}) == held_out({**spec, "c": 1}) for spec in drawn)


def test_the_evaluation_suite_is_held_out_distinct_and_spread():
    suite = evaluation_suite(72, seed=0)
    assert len({spec_text(compiled.spec) for compiled in suite}) == 72
    assert all(compiled.held_out for compiled in suite)
    counts = [sum(c.family == family for c in suite) for family in FAMILIES]
    assert set(counts) == {6}
    levels = [compiled.level for compiled in suite]
    assert min(levels) < 0.3
    assert max(levels) > 0.7
    assert suite == evaluation_suite(72, seed=0)


def test_the_evaluation_suite_keeps_to_the_skills_asked_for():
    suite = evaluation_suite(12, seed=1, skills=["spatial", "optim"])
    assert {compiled.family for compiled in suite} == {"grid", "keys", "sort", "trade"}
    with pytest.raises(SpecError):
        evaluation_suite(1, skills=["juggling"])
