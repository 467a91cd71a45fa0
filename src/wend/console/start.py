"""The entry point of the `wend` command, which imports nothing before it handles Ctrl-C.

If Ctrl-C interrupts the imports of a command, the process ends with code 130 and without a traceback, as it does later.
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
