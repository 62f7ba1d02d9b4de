#!/usr/bin/env python3
"""Adds up JUnit reports: prints what failed, and as the last line `N passed, N failed, N skipped`.

Exits with 1 if a test failed, a report is missing or damaged, or no test ran.
"""

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

LINES_OF_A_FAILURE = 40


def outcome(case: ET.Element) -> str:
    """One of passed, failed and skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in {"notrun", "disabled"}:
        return "skipped"
    return "passed"


def describe(case: ET.Element) -> str:
    """Name and last lines of a failed test: a log that is cut still says here what failed."""
    name = f"{case.get('classname')}::{case.get('name')}"
    said = [part for tag in ("failure", "error", "system-out") for part in case.findall(tag)]
    lines = "\n".join(part.text or part.get("message") or "" for part in said).splitlines()
    return "\n".join([f"FAILED {name}", *(f"  {line}" for line in lines[-LINES_OF_A_FAILURE:])])


def main() -> int:
    counts: Counter[str] = Counter()
    complete = True
    for report in map(Path, sys.argv[1:]):
        try:
            # The reports are written by our own test runners a moment before.
            cases = list(ET.parse(report).iter("testcase"))  # noqa: S314
        except (OSError, ET.ParseError) as error:
            print(f"{report}: {error}", file=sys.stderr)
            complete = False
            continue
        outcomes = [outcome(case) for case in cases]
        counts.update(outcomes)
        for case, found in zip(cases, outcomes, strict=True):
            if found == "failed":
                print(describe(case))
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    return 0 if complete and counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
