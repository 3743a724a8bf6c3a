"""Several servers behind one book of addresses; the client goes to each of them itself.

`share.py` divides a server's settings, `child.py` is one shard's process, `local.py` keeps
several on this machine, `cluster.py` has Ray keep them on its nodes, `book.py` tells clients
where they are, and `serving.py` is the life of the whole.
"""
