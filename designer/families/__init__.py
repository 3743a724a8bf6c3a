"""Structured designing: families of environments, chosen and parametrised by a specification."""

from designer.families.catalog import FAMILIES, SKILLS, Family
from designer.families.compiler import (
    CompiledSpec,
    SpecError,
    check_spec,
    compile_spec,
    draw_spec,
    evaluation_suite,
    held_out,
    narrowed_schema,
    random_spec,
    spec_schema,
    spec_text,
)

__all__ = [
    "FAMILIES",
    "SKILLS",
    "CompiledSpec",
    "Family",
    "SpecError",
    "check_spec",
    "compile_spec",
    "draw_spec",
    "evaluation_suite",
    "held_out",
    "narrowed_schema",
    "random_spec",
    "spec_schema",
    "spec_text",
]
