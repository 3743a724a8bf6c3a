"""What the designing model is asked when it writes a tool-use task as a program."""

from __future__ import annotations

from designer.drafts import Operator
from designer.program_prompts import ProgramPrompt
from designer.skills import Skill

TOOL_SKILLS: dict[str, Skill] = {
    "api": Skill(
        "API Orchestration",
        "What one tool returns is what another takes; the player must find which calls to "
        "join, and in which form values go from one to the next.",
        (
            "get a token, a page mark or a session that later calls need",
            "join two services that name the same things by different keys",
            "start a job, ask for its state, and fetch its result",
            "ask several services and reconcile what they say",
        ),
        "which kind of identifier a service goes by",
    ),
    "retrieval": Skill(
        "Data Retrieval",
        "The answer is spread over records that the player must find, filter and combine; no "
        "single call gives it.",
        (
            "follow references through several tables",
            "filter by two conditions that different tools know of",
            "add up what several pages of results hold",
            "find the record that is newest, valid or responsible",
        ),
        "which record counts where several seem to",
    ),
    "state": Skill(
        "State Modification",
        "The player changes the world until it is as the user wants it, and changes nothing else; "
        "criteria look at the state, not at what was said.",
        (
            "move, reserve or cancel things under a limit",
            "edit settings that depend on each other",
            "swap two things by way of a third place",
            "undo what was done to one thing alone",
        ),
        "what a change drags along",
    ),
    "recovery": Skill(
        "Error Recovery",
        "Calls fail for reasons that the player must read, and the way round is another call; "
        "the same call again does not help.",
        (
            "a record that is locked until its holder is asked",
            "a format that is refused, and told by what",
            "a service that is down, with another that is slower or partial",
            "a half-done change that must be taken back first",
        ),
        "which kind of failure calls for which way round",
    ),
    "selection": Skill(
        "Tool Selection",
        "Several tools look fit, and their descriptions tell which one is; the others give "
        "something that is nearly right.",
        (
            "two searches, one by name and one by number",
            "prices with and without what is added to them",
            "a forecast and a measurement of the same thing",
            "a cheap tool with a limit, and a costly one without",
        ),
        "what tells the right tool from its neighbour",
    ),
    "workflow": Skill(
        "Multi-Step Workflows",
        "Steps stand in an order that follows from what they need; the user asks for several "
        "things in turn, and later ones build on earlier ones.",
        (
            "approve, book and confirm, each with what the last gave",
            "prepare, check and send a set of documents",
            "plan a visit whose parts bind each other",
            "close an account after all that hangs on it",
        ),
        "which step must come before which",
    ),
}

_SYSTEM = r"""You are the designer. You write a tool-use task for a language model, one Python
file.

Contract:
- from spadework_env import Criterion, Message, ToolEnv; exactly one class whose name ends in Env,
  a subclass of ToolEnv. Its docstring says in one line what the task is.
- setup(self, rng): builds the simulated world in attributes of self, and self.messages, what
  the user says in turn. Take all chance from rng. Define no __init__, reset or step.
- Message(text, answer=None, criterion=None): answer is a value, or a function without arguments;
  numbers agree within 0.01, text without case. criterion is Criterion("orders.A1.status",
  "==", "closed") or a list of these: a path into the world, one of == != < <= > >= contains in,
  and a value of the same type. It must be false at the start. A message with a criterion alone
  is done by any answer once the criterion holds.
- tool_<name>(self, ...) methods, 3 to 8 of them, 1 or 2 of which the task does not need. Annotate
  parameters (str, int, float, bool, Literal, list[...]) and describe each tool in a docstring
  with Args. A tool returns text or JSON values, or raises an exception that tells what is wrong.
- solution(self) -> list of str: the actions that win, asked for right after setup. An action is
  <tool_call>{{"name": "...", "arguments": {{...}}}}</tool_call> (write it with json.dumps) or
  <answer>...</answer>; one answer for each message.

What makes a task good:
- At least {least_steps} actions and at most {max_turns} to win; each needs what an earlier one
  showed.
- Every value that a call or an answer needs is told by a message, a tool or a schema, and never
  the final answer by a message. Criteria look at what tools change.
- Every seed gives other names, numbers and answers; the same seed always gives the same world.
  No clock, no id(), no order of a set, no random numbers but those of rng.
- A guess, one call over and over, half of the solution, or that of another seed does not win.
  What may be tried in vain is bounded by the world (a stock, a lock), since an action may hold
  several calls.
- Something holds on every seed, is not told, and helps who knows it: a hint can be worth
  something.
- Results are short. Use only the standard library.

Answer with one Python code block and nothing else."""

_DIFFICULTY_TEXT = {
    "easy": "easy: one message, {low} to {middle} actions, each following from the last",
    "medium": "medium: one or two messages, about {middle} actions, one choice between tools "
    "that look alike",
    "hard": "hard: two or three messages, {middle} to {high} actions, with an error to recover "
    "from or a state that must not be harmed",
}

_DESCENT_TEXT = {
    Operator.EASIER: "The player does this task too rarely. Write an easier one: the same idea "
    "with fewer tools, records or messages. It must still not be done by chance.",
    Operator.HARDER: "The player does this task too easily. Write a harder one: the same idea "
    "with one more message, dependency or tempting wrong tool.",
    Operator.THEME: "Write a task with the same structure in another setting: other tools, other "
    "records, and another hidden regularity.",
    Operator.CROSSOVER: "Write one task that joins the two: what is found out by the means of the "
    "one is needed to act in the other. It must be one world.",
}

TOOL_USE = ProgramPrompt("task", TOOL_SKILLS, _SYSTEM, _DIFFICULTY_TEXT, _DESCENT_TEXT, "records")
