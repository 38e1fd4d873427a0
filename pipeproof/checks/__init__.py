"""Checks: one file a property. ``CHECKS`` lists them, in the order of a report.

Adding one: write ``checks/<name>.py`` with ``NAME``, ``TITLE`` and
``check(subject) -> CheckResult``, and add its row here.
"""
