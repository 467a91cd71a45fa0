"""`python -m wend.matching "filter"` prints the canonical form of a filter, or its syntax error."""

import sys

from wend.matching.filter_warnings import filter_warnings
from wend.matching.filters import parse
from wend.model.errors import FilterError

USAGE = "usage: python -m wend.matching \"temperature in [10, 20] and location = 'Stuttgart'\""


def main(words: list[str]) -> int:
    if len(words) != 1:
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        sys.stdout.write(f"{parse(words[0])}\n")
        sys.stderr.writelines(f"{warning}\n" for warning in filter_warnings(words[0]))
    except FilterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
