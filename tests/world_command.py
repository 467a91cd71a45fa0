"""The command line of modules that play many worlds, each from its own seed."""

import argparse
import sys
from collections.abc import Callable


def main(play: Callable[[range], int], about: str | None) -> None:
    """Read the number of worlds and the first seed from the command line. Exits with 1 if one of them is wrong.
    `play`: plays the worlds of these seeds, and returns how many are wrong."""
    asked = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("count", type=int, help="how many worlds")
    asked.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    given = asked.parse_args()
    sys.exit(play(range(given.first, given.first + given.count)) > 0)
