#!/usr/bin/env python3
"""Adds up JUnit reports and prints one line: `N passed, N failed, N skipped`.

Exits with 1 if a test failed, a report is missing or damaged, or no test ran.
"""

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path


def outcome(case: ET.Element) -> str:
    """One of passed, failed and skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in {"notrun", "disabled"}:
        return "skipped"
    return "passed"


def main() -> int:
    counts: Counter[str] = Counter()
    complete = True
    for report in map(Path, sys.argv[1:]):
        try:
            # The reports are written by our own test runners a moment before.
            cases = ET.parse(report).iter("testcase")  # noqa: S314
        except (OSError, ET.ParseError) as error:
            print(f"{report}: {error}", file=sys.stderr)
            complete = False
            continue
        counts.update(outcome(case) for case in cases)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}")
    return 0 if complete and counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
