"""Environments that nobody here wrote, as programs: what is listed, and one adapter a library.

Nothing of a library runs here: its files are read as text, and travel unchanged inside the
program, as a zip archive that it unpacks and imports from. What a library imports and does not
need in order to play is a stand-in there.
"""

from __future__ import annotations

import ast
import base64
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.library.programs import (
    REASONING_GYM_WITHOUT_ANSWER,
    gymnasium_program,
    minigrid_program,
    reasoning_gym_program,
)

# Path in the package to content.
Files = Mapping[str, bytes]

# Lists what the runtime's libraries register, a kind an episode.
LISTING = """\
import gymnasium
import minigrid
import reasoning_gym.factory


class ListingEnv:
    def reset(self, seed=None):
        point = {name: str(spec.entry_point) for name, spec in gymnasium.registry.items()}
        minigrids = [name for name in point if point[name].startswith("minigrid")]
        gyms = [name for name in point if name not in minigrids and ":" not in name]
        sets = list(reasoning_gym.factory.DATASETS)
        return "listed", {"Gymnasium": gyms, "MiniGrid and BabyAI": minigrids,
                          "reasoning-gym": sets}

    def step(self, action):
        return "", 0.0, True, False, {}
"""

_EMBEDDED = """\
import base64
import io
import sys
import types

exec("import zipfile")


class StandIn(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("Warning"):
            return type(name, (Warning,), {{}})
        return StandIn(f"{{self.__name__}}.{{name}}")

    def __call__(self, *arguments, **named):
        return self

    def __iter__(self):
        raise RuntimeError(f"{{self.__name__}} is a stand-in: it is not in the runtime")


for name in {stand_ins!r}:
    sys.modules[name] = StandIn(name)
# As files, as an installed library is: some read their data from beside their code.
with zipfile.ZipFile(io.BytesIO(base64.b85decode({archive!r}))) as archive:
    archive.extractall("/tmp/library")
sys.path.insert(0, "/tmp/library")
"""

# The imports of what travels along are text there, as gate 2 asks what the runtime offers.
_RLVE = """\
import random

exec("from Gym.environments.{folder} import {name}_Environment as Generator")
exec("from Gym.parameter_controllers.{folder} import {controller} as Controller")


class RLVEEnv:
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.task = Generator()
        parameters = Controller().get_parameter_list()
        for _ in range(5):
            if self.task.generator(rng.randrange(2**31), rng.choice(parameters)):
                question = self.task.prompt_generator()
                return question + "\\n\\nAnswer between <answer> and </answer>.", {{}}
        raise RuntimeError("generator() made no problem in five tries")

    def step(self, action):
        said = self.task.verifier(action)
        return "answered", said["reward"], True, False, {{}}
"""

_RLVE_SOLUTION = """\

    def solution(self):
        return [f"<answer>{self.task.parameter['reference_answer']}</answer>"]
"""

_TEXTARENA = """\
exec("import textarena")


class TextArenaEnv:
    def reset(self, seed=None):
        self.game = textarena.make({name!r})
        self.game.reset(num_players=1, seed=seed)
        return str(self.game.get_observation()[1]), {{}}

    def step(self, action):
        done, info = self.game.step(action)
        reward = self.game.close()[0][0] if done else 0.0
        seen = "over" if done else str(self.game.get_observation()[1])
        return seen, reward, done, False, {{}}
"""

_GEM = """\
exec("import gem, gem.envs")


def make_env():
    return gem.make({name!r})
"""

_BYTESIZED32 = """\


class TextGameEnv:
    def reset(self, seed=None):
        self.game = TextGame(randomSeed=seed)
        return self.game.getTaskDescription() + "\\n" + self._seen(self.game.observationStr), {}

    def step(self, action):
        seen, _, reward, over, _ = self.game.step(action)
        return self._seen(seen), reward, over, False, {}

    def _seen(self, observation):
        return observation + "\\nActions: " + ", ".join(self.game.generatePossibleActions())
"""

# What is imported on the way and plays no part in the games; for NLTK, see docs/strangers.md.
_RLVE_STAND_INS = ["torch"]
_TEXTARENA_STAND_INS = [
    *("nltk", "nltk.corpus", "requests", "urllib3", "urllib3.exceptions", "websockets")
]
_GEM_STAND_INS = ["nltk", "nltk.corpus"]


@dataclass(frozen=True)
class Stranger:
    """An environment that nobody here wrote.

    Attributes:
        library: Where it is from.
        name: What it is called there.
        source: Program for the `library` runtime.
        max_turns: Turn cap that its play needs; 1 for a question and its answer.
    """

    library: str
    name: str
    source: str
    max_turns: int


def of_runtime(listing: Mapping[str, list[str]]) -> list[Stranger]:
    """The environments that the `library` runtime has, from what `LISTING` told."""
    found = [Stranger("Gymnasium", n, gymnasium_program(n), 8) for n in listing["Gymnasium"]]
    found += [
        Stranger("MiniGrid and BabyAI", name, minigrid_program(name), 8)
        for name in listing["MiniGrid and BabyAI"]
    ]
    for name in listing["reasoning-gym"]:
        oracle = name not in REASONING_GYM_WITHOUT_ANSWER
        source = reasoning_gym_program(name, oracle=oracle)
        found.append(Stranger("reasoning-gym", name, source, 1))
    return found


def of_rlve(files: Files) -> list[Stranger]:
    """The generators of RLVE, each with the controller that chooses its parameters.

    The file that imports all 400 is left out of each.
    """
    tree = ast.parse(files["Gym/environments/__init__.py"])
    folders = {
        alias.name.removesuffix("_Environment"): (node.module or "").rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    shared = ("Gym/__init__.py", "Gym/environment.py", "Gym/parameter_controller.py")
    found = []
    for name, folder in folders.items():
        own = (f"Gym/environments/{folder}/", f"Gym/parameter_controllers/{folder}/")
        kept = {p: files[p] for p in files if p in shared or p.startswith(own)}
        named = re.search(rb"\w+_ParameterController", files[own[1] + "__init__.py"])
        # Two generators may share a controller, which then has the name of both.
        controller = named[0].decode() if named else f"{name}_ParameterController"
        source = _embedded(kept, _RLVE_STAND_INS)
        source += _RLVE.format(name=name, folder=folder, controller=controller)
        if b'parameter["reference_answer"]' in files[own[0] + "environment.py"]:
            source += _RLVE_SOLUTION
        found.append(Stranger("RLVE", name, source, 1))
    return found


def of_textarena(files: Files) -> list[Stranger]:
    """The games of TextArena for one player, in their default dress."""
    found = []
    for call in _calls(files["textarena/envs/__init__.py"], "register_with_versions"):
        arguments = {word.arg: word.value for word in call.keywords}
        name, point = (ast.literal_eval(arguments[key]) for key in ("id", "entry_point"))
        folder = point.partition(":")[0].rpartition(".")[0].replace(".", "/") + "/"
        if b"SinglePlayerState" not in files.get(folder + "env.py", b""):
            continue
        kept = _without_others(files, "textarena/envs/", (folder, "textarena/envs/utils/"))
        source = _embedded(kept, _TEXTARENA_STAND_INS) + _TEXTARENA.format(name=name)
        found.append(Stranger("TextArena", name, source, 8))
    return found


def of_gem(files: Files) -> list[Stranger]:
    """The games that GEM brings itself."""
    names = [
        str(ast.literal_eval(call.args[0]))
        for call in _calls(files["gem/envs/__init__.py"], "register")
        if isinstance(call.args[0], ast.Constant)
    ]
    source = _embedded(
        _without_others(files, "gem/envs/", ("gem/envs/game_env/",)), _GEM_STAND_INS
    )
    return [
        Stranger("GEM", name, source + _GEM.format(name=name), 8)
        for name in names
        if name.startswith("game:")
    ]


def of_bytesized32(files: Files) -> list[Stranger]:
    """Games that a model wrote for BYTESIZED32, mended by itself, as it left them."""
    return [
        Stranger("BYTESIZED32", Path(path).stem, content.decode() + _BYTESIZED32, 8)
        for path, content in files.items()
    ]


def of_wheel(wheel: Path) -> Files:
    """The files of a wheel's packages."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name)
            for name in archive.namelist()
            if not name.endswith("/") and ".dist-info/" not in name
        }


def of_folder(folder: Path, under: str) -> Files:
    """The files below a folder of a checkout, by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted((folder / under).rglob("*"))
        if path.is_file()
    }


def _without_others(files: Files, folder: str, kept: tuple[str, ...]) -> Files:
    """All but what lies in other folders of `folder`."""
    return {
        path: content
        for path, content in files.items()
        if not path.startswith(folder) or path.startswith(kept) or "/" not in path[len(folder) :]
    }


def _calls(source: bytes, function: str) -> Iterable[ast.Call]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function:
            yield node


def _embedded(files: Files, stand_ins: list[str]) -> str:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
    return _EMBEDDED.format(
        stand_ins=stand_ins, archive=base64.b85encode(packed.getvalue()).decode()
    )


# How a library's files become programs.
ADAPTERS: dict[str, Callable[[Files], list[Stranger]]] = {
    "RLVE": of_rlve,
    "TextArena": of_textarena,
    "GEM": of_gem,
    "BYTESIZED32": of_bytesized32,
}
