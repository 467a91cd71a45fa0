"""Write the pages and the module that follow from declarations in the code.

python scripts/reference.py          # write the files that are out of date
python scripts/reference.py --check  # write nothing; exit with 1 if a file is out of date
"""

import sys
from pathlib import Path

from reference_pages import client_protocol, errors, notices, proofs, settings, status, wire_format

ROOT = Path(__file__).parents[1]

FILES = {
    "docs/reference/settings.md": settings.page,
    "docs/reference/notices.md": notices.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/proofs.md": proofs.page,
    "docs/reference/status.md": status.page,
    "docs/reference/wire-format.md": wire_format.page,
    "docs/reference/client-protocol.md": client_protocol.page,
    "src/wend/drivers/scenario_fields.py": settings.typed_fields,
}


def main(words: list[str]) -> int:
    check = words == ["--check"]
    stale = 0
    for name, made in FILES.items():
        path, text = ROOT / name, made()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"{name} is out of date: run python scripts/reference.py", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
