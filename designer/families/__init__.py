"""Structured designing: families of environments, chosen and parametrised by a specification."""

from designer.families.catalog import FAMILIES, SKILLS, Family
from designer.families.compiler import (
    CompiledSpec,
    SpecError,
    check_spec,
    compile_spec,
    draw_spec,
    evaluation_suite,
    families_of,
    family_named,
    held_out,
    narrowed_schema,
    random_spec,
    spec_schema,
    spec_text,
)
from designer.families.ladders import Ladder, ladders
from designer.families.tool_catalog import TOOL_FAMILIES, TOOL_SKILLS

__all__ = [
    "FAMILIES",
    "SKILLS",
    "TOOL_FAMILIES",
    "TOOL_SKILLS",
    "CompiledSpec",
    "Family",
    "Ladder",
    "SpecError",
    "check_spec",
    "compile_spec",
    "draw_spec",
    "evaluation_suite",
    "families_of",
    "family_named",
    "held_out",
    "ladders",
    "narrowed_schema",
    "random_spec",
    "spec_schema",
    "spec_text",
]
