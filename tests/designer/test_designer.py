"""From request to memory: prompts, reading, repair, twins, hints, resume."""

from __future__ import annotations

import json
import random

import programs
import pytest

from designer import Archive, Corpus, Designer, Reason
from designer.completions import CompletionError, read_code, read_hint, read_spec
from designer.families import SKILLS, held_out, random_spec, spec_text
from designer.hints import HintError, check_hint_against, check_hint_text
from designer.twins import program_key


@pytest.fixture
def archive():
    with Archive(":memory:") as opened:
        yield opened


def draw(skill: str, *, kept: bool, salt: int = 0) -> dict:
    """A specification of a skill that is, or is not, kept for evaluation."""
    rng = random.Random(salt)
    return next(
        spec for _ in range(1000) if held_out(spec := random_spec(rng, skill=skill)) == kept
    )


class TestRequests:
    def test_compact_prompts_are_one_short_line_and_carry_the_skills_schema(self, archive):
        designer = Designer(None, archive, prompt_style="compact", max_turns=8)
        for request in designer.requests(6, step=0):
            assert request.messages == [{"role": "user", "content": f"design {request.skill} 8\n"}]
            names = json.dumps(json.loads(request.json_schema))
            assert request.skill in SKILLS
            assert '"f"' in names

    def test_few_skills_share_the_slots_of_a_step_and_steps_differ(self, archive):
        designer = Designer(None, archive, skills_per_step=3)
        steps = [[r.skill for r in designer.requests(9, step)] for step in range(12)]
        assert all(len(set(skills)) == 3 for skills in steps)
        assert {skill for skills in steps for skill in skills} == set(SKILLS)
        assert all(skills.count(skills[0]) == 3 for skills in steps)

    def test_a_second_round_goes_on_with_the_slots(self, archive):
        designer = Designer(None, archive)
        first, second = designer.requests(2, 0), designer.requests(2, 0)
        assert [r.slot for r in first + second] == [0, 1, 2, 3]
        assert len({r.seed for r in first + second}) == 4

    def test_the_same_seed_asks_the_same(self, archive):
        requests = [Designer(None, archive, seed=3).requests(4, 5) for _ in range(2)]
        assert requests[0] == requests[1]

    def test_the_turn_cap_in_force_reaches_both_prompts(self, archive):
        for method in ("structured", "free_code"):
            designer = Designer(None, archive, method=method, max_turns=8)
            designer.max_turns = 17
            (request,) = designer.requests(1, 0)
            assert "17" in "".join(message["content"] for message in request.messages)
            assert request.max_turns == 17

    def test_free_code_is_unconstrained_and_shows_the_document(self, archive):
        designer = Designer(None, archive, method="free_code", corpus=Corpus.named("embedded"))
        for request in designer.requests(4, 4):
            assert request.json_schema is None
            assert request.document
            assert "<document>" in request.messages[1]["content"]
            assert "ends in Env" in request.messages[0]["content"]

    @pytest.mark.parametrize(
        "wrong", [{"method": "magic"}, {"prompt_style": "rude"}, {"skills": ["juggling"]}]
    )
    def test_unknown_settings_are_named(self, archive, wrong):
        with pytest.raises(ValueError, match="one of"):
            Designer(None, archive, **wrong)


class TestReading:
    def test_a_program_is_found_in_fences_thoughts_and_talk(self):
        program = "class AEnv:\n    x = 1\n"
        for text in (
            program,
            f"```python\n{program}```",
            f"Here:\n```py\n{program}```\nand usage\n```python\nAEnv()\n```",
            f"<think>class B:\n ```python\nclass C: pass\n``` </think>\n```\n{program}```",
            f"never opened </think>```python\n{program}```",
            f"```python\n{program}",
            f"Sure!\n\n{program}",
            f"~~~~\n{program}~~~~",
        ):
            assert read_code(text) == program

    @pytest.mark.parametrize("text", ["", "I cannot.", "```python\nx = 1\n```", "<think>class A:"])
    def test_no_program_is_said(self, text):
        with pytest.raises(CompletionError):
            read_code(text)

    def test_a_specification_is_the_first_object(self):
        assert read_spec('<think>{"f":1}</think> so {"f": "grid"} or {"f": 2}') == {"f": "grid"}
        assert read_spec('{broken {"f":3}') == {"f": 3}
        for text in ("", "[1]", "{", '{"f":'):
            with pytest.raises(CompletionError):
                read_spec(text)

    def test_a_hint_loses_label_thoughts_and_quotes(self):
        assert read_hint('<think>x</think> **Hint:** "Look up."') == "Look up."


class TestParsing:
    def test_a_specification_becomes_a_program_with_its_hint(self, archive, make_request):
        spec = draw("logic", kept=False)
        designer = Designer(None, archive)
        draft = designer.parse(make_request(8, "structured"), spec_text(spec))
        assert draft.reason is None
        assert draft.spec == spec
        assert "Env" in draft.source
        assert draft.hint
        assert designer.hint_request(draft) is None

    @pytest.mark.parametrize(
        ("text", "reason"),
        [("no", Reason.PARSE), ('{"f":"grid"}', Reason.SPEC), ('{"f":["grid"]}', Reason.SPEC)],
    )
    def test_what_is_no_specification_has_a_reason(self, archive, make_request, text, reason):
        draft = Designer(None, archive).parse(make_request(8, "structured"), text)
        assert draft.reason == reason
        assert draft.detail

    def test_a_world_kept_for_evaluation_is_refused(self, archive, make_request):
        text = spec_text(draw("spatial", kept=True))
        request = make_request(8, "structured")
        assert Designer(None, archive).parse(request, text).reason == Reason.HELD_OUT
        assert Designer(None, archive, allow_held_out=True).parse(request, text).reason is None

    def test_free_code_is_repaired_and_then_asks_for_its_hint(self, archive, make_request):
        completion = f"```python\n{programs.SOUND}```".replace(
            '"Arrows: "', 'f"Say \\\\boxed{your arrow}. Arrows: "'
        )
        designer = Designer(None, archive, method="free_code")
        draft = designer.parse(make_request(), completion)
        assert draft.reason is None
        assert "{{your arrow}}" in draft.source
        assert "1 f-string field" in draft.detail
        request = designer.hint_request(draft)
        assert draft.source in request.messages[1]["content"]
        assert designer.accept_hint(draft, "HINT: follow them").hint == "follow them"
        refused = designer.accept_hint(draft, "import random\nprint(1)")
        assert refused.reason == Reason.HINT


class TestHints:
    @pytest.mark.parametrize(
        "hint",
        ["", " ", "x" * 601, "```\nx\n```", "def f(x): return x", "x = self.goal", "move(3)"],
    )
    def test_empty_long_and_code_hints_are_refused(self, hint):
        with pytest.raises(HintError):
            check_hint_text(hint)

    @pytest.mark.parametrize("hint", ["Mind the order.", "goal NE", "a+1 b*2 c-3", "y 02"])
    def test_plain_hints_are_fine(self, hint):
        check_hint_text(hint)

    def test_a_value_or_a_long_sequence_is_refused_on_any_seed(self):
        for hint, solution in [
            ("It is 42.", ["42"]),
            ("Use (3, 4) then.", ["\\boxed{(3, 4)}"]),
            ("go left, right, left!", ["left", "right", "left"]),
            ("NNEESSWW works", list("NNEESSWW")),
        ]:
            with pytest.raises(HintError):
                check_hint_against(hint, [["other", "things"], solution])

    def test_a_short_sequence_is_refused_only_where_it_serves_most_seeds(self):
        check_hint_against("a>b b>c c>a", [["a", "b", "b"], ["c", "c", "a"], ["b", "a", "c"]])
        with pytest.raises(HintError):
            check_hint_against("say a b b", [["a", "b", "b"], ["a", "b", "b"], ["c"] * 3])

    def test_parts_of_words_are_no_answer(self):
        check_hint_against("Start at 420 and go northward.", [["42"], ["north"]])


async def test_twins_are_refused_once_and_remembered_ones_where_asked(
    client, archive, make_draft, make_request
):
    designer = Designer(client, archive, method="free_code", refuse_remembered=True)
    designer.requests(3, 0)
    twin = programs.SOUND.replace("import random", "# the same, with a remark\nimport random")
    reports = await designer.validate(
        [make_draft(programs.SOUND), make_draft(twin, slot=1), make_draft("class (", slot=2)]
    )
    assert [r.reason for r in reports] == [Reason.OK, Reason.DUPLICATE, Reason.PARSE]
    for report in reports:
        designer.remember(report, 0)
    assert archive.reason_counts(0) == {"OK": 1, "DUPLICATE": 1, "PARSE": 1}
    (again,) = await designer.validate([make_draft(twin)])
    assert again.reason == Reason.DUPLICATE
    assert "memory" in again.detail


async def test_a_structured_step_from_request_to_memory(client, archive):
    designer = Designer(client, archive, skills=["spatial"], prompt_style="chat")
    requests = designer.requests(2, 0)
    drafts = [
        designer.parse(request, spec_text(draw("spatial", kept=False, salt=index)))
        for index, request in enumerate(requests)
    ]
    reports = await designer.validate(drafts)
    for report in reports:
        designer.remember(report, 0)
        if report.passed:
            plays = [
                {"arm": arm, "seed": seed, "episode_return": float(arm == "hinted")}
                | {"terminated": True, "truncated": False, "turns": 4}
                for arm in ("plain", "hinted")
                for seed in range(3)
            ]
            designer.record_plays(report.env_id, 0, plays)
            designer.record_measurement(
                report.env_id,
                0,
                win_plain=0.0,
                win_hinted=1.0,
                regret=1.0,
                regret_se=0.0,
                regime="frontier",
                designer_reward=0.4,
            )
    assert any(report.passed for report in reports)
    (request,) = designer.requests(1, 4)
    assert "plain 0.00, hinted 1.00" in request.messages[1]["content"]


def test_the_program_hash_ignores_layout_remarks_and_docstrings():
    one = 'class AEnv:\n    """Doc."""\n    def step(self): return 1\n'
    two = "# x\nclass AEnv:\n\n    def step(self):\n        return 1\n"
    assert program_key(one) == program_key(two)
    assert program_key(one) != program_key(two.replace("1", "2"))
