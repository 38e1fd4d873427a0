"""The event graph: every op starts and completes, and some events need others.

``graph`` is the value, ``build`` makes it of a program and a transport, ``run``
executes it greedily, and ``blame`` says why a run got stuck.
"""
