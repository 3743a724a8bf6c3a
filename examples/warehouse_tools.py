"""Tool use: answer a customer with the help of a warehouse's tools.

    spadework validate examples/warehouse_tools.py
    spadework play examples/warehouse_tools.py --policy oracle
    spadework play examples/warehouse_tools.py

The base class `ToolEnv` comes with the sandbox. It finds the methods named tool_<name>,
publishes their schemas from signature and docstring, and reads what the model says:

    <tool_call>{"name": "find_item", "arguments": {"name": "lamp"}}</tool_call>
    <answer>42</answer>
"""

import json

from spadework_env import Message, ToolEnv

ITEMS = ("lamp", "desk", "chair", "shelf", "mirror", "carpet")


class WarehouseEnv(ToolEnv):
    def setup(self, rng):
        """Build the world from `rng`, and the user's messages with what each one demands."""
        names = rng.sample(ITEMS, 4)
        codes = rng.sample(range(100, 1000), 4)
        self.codes = {name: f"W{code}" for name, code in zip(names, codes, strict=True)}
        self.stock = {code: rng.randint(3, 40) for code in self.codes.values()}
        self.price = {code: rng.randint(5, 95) for code in self.codes.values()}
        self.reserved = {}
        self.item, self.count = names[0], rng.randint(1, 3)
        code = self.codes[self.item]
        # Two messages: the second is shown once the first is done. An answer is compared
        # without case, numbers within 0.01; a criterion is about the state of the world.
        self.messages = [
            Message(
                f"Please reserve {self.count} of the item '{self.item}' for me, then answer "
                "'done'.",
                answer="done",
                criterion=lambda: self.reserved == {code: self.count},
            ),
            Message(
                "What do they cost together, and how many are left to others? Answer with the "
                "sum of both numbers.",
                answer=self.count * self.price[code] + self.stock[code] - self.count,
            ),
        ]

    def tool_find_item(self, name: str) -> dict:
        """Find the code of an item by its name."""
        # An exception is shown to the model as an error; the episode goes on.
        return {"code": self.codes[name]}

    def tool_look_up(self, code: str) -> dict:
        """Stock and unit price of an item, by its code."""
        free = self.stock[code] - self.reserved.get(code, 0)
        return {"in_stock": free, "price": self.price[code]}

    def tool_reserve(self, code: str, count: int) -> dict:
        """Reserve some of an item; the code is not the name."""
        if not 0 < count <= self.stock[code]:
            raise ValueError(f"there are {self.stock[code]} in stock")
        self.reserved[code] = self.reserved.get(code, 0) + count
        return {"reserved": self.reserved[code]}

    def tool_opening_hours(self) -> dict:
        """When the warehouse is open. A distractor: the task does not need it."""
        return {"monday to friday": "8 to 18"}

    def solution(self):
        code = self.codes[self.item]
        return [
            _call("find_item", name=self.item),
            _call("reserve", code=code, count=self.count),
            "<answer>done</answer>",
            _call("look_up", code=code),
            f"<answer>{self.messages[1].answer}</answer>",
        ]


def _call(name, /, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
