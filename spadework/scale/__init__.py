"""How the cost grows, and what many more episodes would need.

`axes` says what is measured, `growth` measures it (each point a trial of the benchmark, in a
process of its own), `laws` fits curves, `findings` says what grows how, and `curves` draws it.
`events` is a discrete-event simulation's clock and queues, `fleet` the model of clients, shards
and environment processes in it, `forecast` what it is asked, and `page` writes the page.
"""
