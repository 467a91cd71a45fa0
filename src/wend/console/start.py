"""The entry point of the `wend` command, which imports nothing before it handles Ctrl-C.

The imports of the commands take longer than a keystroke. An interruption during them ends the process with code 130,
and without a traceback, as it does later.
"""

import sys


def main() -> None:
    try:
        from wend.console.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
