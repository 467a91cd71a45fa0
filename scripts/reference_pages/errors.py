"""The page of the codes of errors."""

from collections.abc import Iterator

from wend.model.errors import ERROR_CODES, WendError

PAGE = """\
# Errors

<!-- Written by scripts/reference.py. -->

Every error has a code for programs and a sentence for people. Codes never change; sentences may.

| where | what you get |
| --- | --- |
| Python | `error.code` of every `wend.WendError`; its text is the sentence |
| a command | the sentence on stderr; with `--json`, `{"error": {"code": ..., "sentence": ...}}` on stderr |
| the [client protocol](client-protocol.md) | `code` and `why` of the frame `refused`, and of `posted` |

A command exits with 2 after an error, with 70 after `internal`, and with 75 after `try-again`.

## Codes

| code | meaning |
| --- | --- |
"""

CLASSES = """
## Python classes

An error of a class has the code in the table, or a more precise one.

| class | code | is a |
| --- | --- | --- |
"""


def page() -> str:
    codes = "".join(f"| `{code}` | {sentence} |\n" for code, sentence in ERROR_CODES.items())
    classes = "".join(
        f"| `{error.__name__}` | `{error.code}` | `{error.__bases__[0].__name__}` |\n" for error in error_classes()
    )
    return "".join([PAGE, codes, CLASSES, classes])


def error_classes(base: type[WendError] = WendError) -> Iterator[type[WendError]]:
    """All classes of errors, each after its base."""
    yield base
    for each in base.__subclasses__():
        yield from error_classes(each)
