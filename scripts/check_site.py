#!/usr/bin/env python3
"""Checks that links between the pages of a built site lead to a file and, if named, a place in it.

    check_site.py docs/_build/html

Sphinx checks the links that it knows; this also finds dead ones in raw HTML, figures and downloads.
"""

import argparse
import re
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r'<(?:a|img|link|script)\b[^>]*?\b(?:href|src)="([^"]+)"')
PLACE = re.compile(r'\b(?:id|name)="([^"]+)"')


@cache
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def places(page: Path) -> frozenset[str]:
    return frozenset(PLACE.findall(text(page)))


def dead_links(site: Path) -> list[str]:
    """Return page and link of every dead link."""
    dead = []
    for page in sorted(site.rglob("*.html")):
        for link in LINK.findall(text(page)):
            if re.match(r"[a-z]+:|//", link):
                continue
            path, _, place = unquote(link.replace("&amp;", "&")).partition("#")
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            is_dead = not target.exists()
            if place and not is_dead and target.suffix == ".html":
                is_dead = place not in places(target)
            if is_dead:
                dead.append(f"{page.relative_to(site)}: {link}")
    return dead


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the links between the pages of a site.")
    parser.add_argument("site", type=Path)
    site = parser.parse_args().site.resolve()
    dead = dead_links(site)
    for link in dead:
        print(link)
    if not (site / "index.html").is_file():
        print(f"{site} has no index.html")
        return 1
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
