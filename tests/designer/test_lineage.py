"""Mutation and crossover: who the parents are, what a child may be, what is recorded."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from designer import Archive, Designer, GateReport, LineageShares, Remembered
from designer.drafts import Operator
from designer.families import FAMILIES, check_spec, compile_spec, draw_spec, random_spec, spec_text
from designer.lineage import descend

MUTATIONS = (Operator.EASIER, Operator.HARDER, Operator.THEME)


def remembered(spec: dict | None, return_plain: float = 0.5, name: str = "") -> Remembered:
    return Remembered(
        env_id=name or (spec_text(spec) if spec else "program"),
        skill="spatial",
        spec_json=spec_text(spec) if spec else "",
        summary="AEnv",
        source=compile_spec(spec).source if spec else f"class {name or 'A'}Env: pass\n",
        hint="",
        return_plain=return_plain,
        return_hinted=0.5,
        regime="frontier",
        score=0.0,
    )


def level(spec: dict) -> float:
    return FAMILIES[spec["f"]].level(spec)


def test_shares_decide_how_often_each_operator_is_drawn():
    shares = LineageShares(easier=0.1, harder=0.2, theme=0.3, crossover=0.2)
    rng = random.Random(0)
    drawn = Counter(shares.draw(rng) for _ in range(5000))
    for operator, share in (("easier", 0.1), ("harder", 0.2), ("theme", 0.3), ("new", 0.2)):
        assert abs(drawn[Operator(operator)] / 5000 - share) < 0.03


@pytest.mark.parametrize("shares", [{"easier": -0.1}, {"easier": 0.6, "theme": 0.6}])
def test_shares_that_make_no_sense_are_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        LineageShares(**shares)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("operator", MUTATIONS)
def test_each_specification_that_the_grammar_leaves_is_what_the_operator_says(family, operator):
    rng = random.Random(f"{family} {operator}")
    seen = 0
    for _ in range(20):
        parent = random_spec(rng, family=family)
        descent = descend(operator, [remembered(parent)], rng, structured=True)
        if descent is None:
            # It is the easiest or the hardest already.
            assert level(parent) == (0.0 if operator == Operator.EASIER else 1.0)
            continue
        for _ in range(10):
            child = draw_spec(descent.schema, rng)
            check_spec(child)
            seen += 1
            assert child != parent
            if operator == Operator.EASIER:
                assert level(child) < level(parent)
            elif operator == Operator.HARDER:
                assert level(child) > level(parent)
            else:
                assert level(child) == level(parent)
    assert seen > 50


def test_a_child_of_two_has_each_value_from_one_of_them():
    rng = random.Random(1)
    parents = [random_spec(rng, family="grid") for _ in range(2)]
    memory = [remembered(spec) for spec in parents]
    descent = descend(Operator.CROSSOVER, memory, rng, structured=True)
    assert {p.env_id for p in descent.parents} == {m.env_id for m in memory}
    children = [draw_spec(descent.schema, rng) for _ in range(50)]
    assert all(child[n] in {p[n] for p in parents} for child in children for n in child)
    assert len({spec_text(child) for child in children}) > 2


def test_parents_of_two_families_or_alike_have_no_child():
    rng = random.Random(1)
    grid, keys = random_spec(rng, family="grid"), random_spec(rng, family="keys")
    twin = {**grid, "c": 1 - grid["c"]}
    for other in (keys, grid, twin):
        memory = [remembered(grid), remembered(other, name="other")]
        assert descend(Operator.CROSSOVER, memory, rng, structured=True) is None


def test_what_is_won_least_is_made_easier_and_what_is_won_most_harder():
    rng = random.Random(2)
    memory = [remembered(None, value / 10, f"e{value}") for value in range(10)]
    for operator, expected in ((Operator.EASIER, {0, 1, 2}), (Operator.HARDER, {7, 8, 9})):
        chosen = {
            descend(operator, memory, rng, structured=False).parents[0].env_id for _ in range(60)
        }
        assert chosen == {f"e{value}" for value in expected}


def test_programs_and_specifications_are_not_each_others_parents():
    rng = random.Random(3)
    spec = remembered(random_spec(rng, family="grid"))
    assert descend(Operator.THEME, [spec], rng, structured=False) is None
    assert descend(Operator.THEME, [remembered(None)], rng, structured=True) is None


@pytest.mark.parametrize("style", ["compact", "chat"])
def test_a_structured_child_is_asked_for_with_its_parent_and_recorded(style):
    with Archive(":memory:") as archive:
        shares = LineageShares(harder=1.0)
        designer = Designer(
            None, archive, skills=["spatial"], lineage=shares, prompt_style=style, seed=5
        )
        (first,) = designer.requests(1, 0)
        assert (first.operator, first.parents) == (Operator.NEW, ())
        spec = {**draw_spec(json.loads(first.json_schema), random.Random(0)), "s": 2}
        draft = designer.parse(first, spec_text(spec))
        designer.remember(GateReport(draft, "OK", env_id="parent"), 0)
        (child,) = designer.requests(1, 1)
        assert (child.operator, child.parents) == (Operator.HARDER, ("parent",))
        assert spec_text(spec) in child.messages[-1]["content"]
        if style == "compact":
            text = f"harder spatial 8 {spec_text(spec)}\n"
            assert child.messages == [{"role": "user", "content": text}]
        harder = draw_spec(json.loads(child.json_schema), random.Random(0))
        designer.remember(GateReport(designer.parse(child, spec_text(harder)), "FUZZ"), 1)
        row = archive._connection.execute(
            "SELECT parents_json, operator FROM environments WHERE created_step = 1"
        ).fetchone()
        assert tuple(row) == ('["parent"]', "harder")


@pytest.mark.parametrize("operator", [*MUTATIONS, Operator.CROSSOVER])
def test_a_program_is_asked_for_with_its_parents_shown(operator):
    with Archive(":memory:") as archive:
        shares = LineageShares(**{operator: 1.0})
        designer = Designer(None, archive, method="free_code", skills=["memory"], lineage=shares)
        for number, request in enumerate(designer.requests(2, 0)):
            source = f"class Game{number}Env:\n    x = {number}\n"
            report = GateReport(designer.parse(request, source), "OK", env_id=f"p{number}")
            designer.remember(report, 0)
        (child,) = designer.requests(1, 1)
        asked = child.messages[-1]["content"]
        count = 2 if operator == Operator.CROSSOVER else 1
        assert len(child.parents) == count
        assert asked.count("```python") == count
        assert child.operator == operator
