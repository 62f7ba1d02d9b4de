"""Writes the golden values of the self-test, python/pulsora/verification/golden.json.

They change only with the physics, the contract of random numbers, a parameter default or the
version; names that change are printed.
"""

from __future__ import annotations

from pulsora.verification import golden


def main() -> None:
    new = golden.current()
    try:
        old = golden.read()
    except golden.GoldenError as error:
        print(error)
        old = {"hashes": {}, "defaults": {}}
    for group in ("hashes", "defaults"):
        names = sorted(set(old[group]) | set(new[group]))
        changed = [name for name in names if old[group].get(name) != new[group].get(name)]
        print(f"{group}: {len(changed)} of {len(names)} changed")
        for name in changed:
            print(f"  {name}")
    golden.PATH.write_text(golden.text_of(new), encoding="utf-8")
    print(f"written: {golden.PATH}")


if __name__ == "__main__":
    main()
