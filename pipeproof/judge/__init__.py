"""From one target to its report: build, check, replay, measure.

Nothing here decides anything; it asks the rooms below and puts the answers
together.
"""
