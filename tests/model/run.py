"""Search outside the tests: `python -m tests.model.run [--all] [NAME ...]` from the root of the repository.

`--all` searches the large worlds, which take minutes; a NAME picks worlds by a part of theirs. The exit status is 1
where a guarantee is broken, and the shortest way there is printed.
"""

from __future__ import annotations

import sys

from .search import search
from .worlds import LARGE, SMALL


def main(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    worlds = LARGE if "--all" in words else SMALL
    states, seconds, broken = 0, 0.0, 0
    for name, world in worlds.items():
        if not names or any(part in name for part in names):
            found = search(world)
            print(f"{name}: {found}", flush=True)
            states, seconds, broken = states + found.states, seconds + found.seconds, broken + bool(found.broken)
    print(f"{states} states in {seconds:.0f} s, {broken} worlds broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
