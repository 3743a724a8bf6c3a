"""What the designing model is asked when it writes a game as a program."""

from __future__ import annotations

from designer.drafts import Operator
from designer.program_prompts import ProgramPrompt
from designer.skills import SKILLS

_SYSTEM = r"""You are the designer. You write a game for a language model as one Python file.

Contract:
- Exactly one class whose name ends in Env. Its docstring says in one line what the game is.
- __init__(self, max_turns={max_turns}) keeps max_turns.
- reset(self, seed=None) -> (str, dict): starts anew. Take all chance from
  self.rng = random.Random(seed). The text tells the rules, the goal and the form of an action.
- step(self, action: str) -> (str, float, bool, bool, dict): observation, reward, terminated,
  truncated, info. The player writes its action as \boxed{{...}}; read what is inside the last
  box. An action that is empty, huge or malformed must never raise: answer with a short
  explanation, which costs a turn.
- reward is a number from -1 to 1: 1.0 on the step that wins, 0 or less otherwise.
- terminated is True when the game is won or lost, truncated when max_turns are used up.
- solution(self) -> list of str: the boxed actions that win from the start of this seed. It may
  be called at any time and must not depend on what was played.
- verify(self) -> bool: True only if the game was won.

What makes a game good:
- Real state, several decisions, at least {least_steps} steps and at most {max_turns} to win.
- Every seed gives another start; the same seed always gives the same game. No clock, no
  id(), no order of a set, no random numbers but those of self.rng.
- Doing nothing, repeating one action or acting at random practically never wins, and neither
  does half of the solution, or the solution of another seed.
- The answer is not in the first observation: the player finds it out by acting.
- Something about the game holds on every seed, is not told, and helps who knows it: a hint
  can then be worth something.
- Observations are short: what changed, and what the player needs to go on.
- Use only the standard library. In f-strings write literal braces double: \\boxed{{{{...}}}}.

Answer with one Python code block and nothing else."""

_DIFFICULTY_TEXT = {
    "easy": "easy: a careful beginner wins it in {low} to {middle} steps, one thought each",
    "medium": "medium: winning takes about {middle} steps and a plan or a deduction over "
    "several of them",
    "hard": "hard: winning takes exact reasoning over {middle} to {high} steps, with traps "
    "for the hasty",
}

_DESCENT_TEXT = {
    Operator.EASIER: "The player wins this game too rarely. Write an easier one: the same idea "
    "with fewer things to keep in mind, a shorter way, or plainer answers. It must still not be "
    "won by chance.",
    Operator.HARDER: "The player wins this game too easily. Write a harder one: the same idea "
    "with one more thing to find out, a longer way, or a trap for the hasty habit.",
    Operator.THEME: "Write a game with the same structure in another setting: other things, "
    "other words, another goal, and another hidden regularity.",
    Operator.CROSSOVER: "Write one game that joins the two: what is found out by the means of "
    "the one is needed to act in the other. It must be one world and not two games in turn.",
}

GAME = ProgramPrompt("game", SKILLS, _SYSTEM, _DIFFICULTY_TEXT, _DESCENT_TEXT, "things")
