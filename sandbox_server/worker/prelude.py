"""Names that generated programs use without importing them.

Public LLM-written environments lean on these; injecting them costs a dictionary copy.
A program's own definitions win, since they are executed after.
"""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import json
import math
import operator
import random
import re
import string
import sys
import time
import typing
from typing import Any

_MODULES = (
    collections,
    copy,
    dataclasses,
    enum,
    functools,
    heapq,
    itertools,
    json,
    math,
    operator,
    random,
    re,
    string,
    sys,
    time,
    typing,
)
_TYPING = [
    "Any",
    "Callable",
    "Dict",
    "Iterable",
    "Iterator",
    "List",
    "Literal",
    "NamedTuple",
    "Optional",
    "Sequence",
    "Set",
    "SupportsFloat",
    "Tuple",
    "Type",
    "TypeVar",
    "Union",
]


def _names() -> dict[str, Any]:
    """The names, by the name a program would use."""
    found: dict[str, Any] = {module.__name__: module for module in _MODULES}
    found.update({name: getattr(typing, name) for name in _TYPING})
    found.update(
        ABC=abc.ABC,
        abstractmethod=abc.abstractmethod,
        Counter=collections.Counter,
        OrderedDict=collections.OrderedDict,
        defaultdict=collections.defaultdict,
        deque=collections.deque,
        namedtuple=collections.namedtuple,
        dataclass=dataclasses.dataclass,
        field=dataclasses.field,
        Enum=enum.Enum,
        lru_cache=functools.lru_cache,
        reduce=functools.reduce,
        combinations=itertools.combinations,
        permutations=itertools.permutations,
        product=itertools.product,
        deepcopy=copy.deepcopy,
    )
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found.update(np=numpy, numpy=numpy)
    return found


NAMES = _names()
