"""Steps a second of the sandbox beside what else steps many environments, in one run.

`plan` says what is measured, `subjects` are the competitors, `trial` measures one of them in a
process of its own, `rounds` lets them take turns, `report` and `plot` show the figures.

What trials import (`case`, `meter`, `trial`, `subjects`) needs the standard library alone:
competitors run with the Python of an environment of their own (`peers`).
"""
