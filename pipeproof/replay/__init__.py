"""Executors: they run a program step by step and say what happened.

The model (``model``) interprets the program format literally and shares no
code with the engines, so that it can contradict them. ``confirm`` uses it to
re-enact a counterexample before anybody sees it.
"""
