"""Checks: one file a property. ``CHECKS`` lists them, in the order of a report.

Adding one: write ``checks/<name>.py`` with ``NAME``, ``TITLE`` and
``check(subject) -> CheckResult``, where some programs have nothing to check also
``applies(subject) -> bool``, and add its row here.
"""
