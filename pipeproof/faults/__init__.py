"""Seeded faults: break a healthy plan by rule, and see whether a check objects.

A rule is a small function from a schedule or program to mutants, each with a
name in words; it names the checks that must catch them. A mutant that no check
objects to must be shown harmless by a reading that shares no code with the
checks (``harmless``), or it is a hole in them.
"""
