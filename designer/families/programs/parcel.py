import itertools

from designer.families.programs.tools import NAMES, Task, message, needs

P = {"n": 3, "t": 2, "s": 1}
JOBS = ["pack", "seal", "weigh", "label"]
ORDERS = {size: list(itertools.permutations(JOBS[:size])) for size in (3, 4)}


class ParcelEnv(Task):
    """Do the jobs of a parcel in the order that the depot wants; a wrong one costs a form."""

    def start(self, rng):
        self.order = ORDERS[P["n"]][P["t"]]
        owner = rng.choice(NAMES)
        numbers = rng.sample(range(1000, 10000), len(NAMES))
        self.parcels = {name: f"K{number}" for name, number in zip(NAMES, numbers, strict=True)}
        self.done = {parcel: [] for parcel in self.parcels.values()}
        self.receipts = {parcel: rng.randint(1000, 9999) for parcel in self.done}
        self.sent = []
        self.forms = P["s"]
        code = self.parcels[owner]
        self.messages = [
            message(
                f"Send the parcel of {owner}: jobs {', '.join(JOBS[: P['n']])}, in the depot's "
                f"order; forms to spare {self.forms}. Which number is on the receipt?",
                answer=self.receipts[code],
                criterion=needs("sent", "contains", code),
            )
        ]
        self.call("look_up", owner=owner)
        for job in self.order:
            self.call("work", parcel=code, job=job)
        self.call("send", parcel=code)
        self.answer(self.receipts[code])

    def tool_look_up(self, owner: str):
        """The number of somebody's parcel."""
        return {"parcel": self.parcels[owner]}

    def tool_work(self, parcel: str, job: str):
        """Do one job on a parcel. Out of order it costs a form."""
        done = self.done[parcel]
        if self.forms < 0:
            raise RuntimeError("no form is left")
        if len(done) == len(self.order) or job != self.order[len(done)]:
            self.forms -= 1
            raise ValueError("not now; that cost a form")
        done.append(job)
        return "done"

    def tool_send(self, parcel: str):
        """Send a parcel that is ready."""
        if len(self.done[parcel]) < len(self.order):
            raise ValueError("it is not ready")
        self.sent.append(parcel)
        return {"receipt": self.receipts[parcel]}

    def tool_tariff(self):
        """What parcels cost."""
        return "4 a kilo"
