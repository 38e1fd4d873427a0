"""Published figures of known schedules, and the same figures computed here.

The facts stand in two data files, each with its source; a small function a claim
computes our value from the zoo and the engines; `table` joins them.
"""
