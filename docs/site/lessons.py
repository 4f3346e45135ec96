#!/usr/bin/env python3
"""Writes the texts of the explorer's lessons as pages of the site.

    docs/site/lessons.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LESSONS = ROOT / "crates/apps/noren-explorer/page/lessons.json"


def page(lesson: dict, number: int) -> str:
    """Returns one lesson: its text, its task, a hint, and the answer, folded away."""
    reasons = "\n".join(f"- `{reason['mask']}`: {reason['says']}" for reason in lesson["reasons"])
    parts = [
        f"# {number}. {lesson['title']}",
        *lesson["text"],
        "## Task",
        lesson["task"],
        f"The explorer (`noren serve --open`, then `#/learn`) starts with `{lesson['start']}` and compares every cell of your answer.",
        f"<details><summary>Hint</summary>\n\n{lesson['hint']}\n\n</details>",
        f"<details><summary>Answer</summary>\n\n```text\n{lesson['wanted']}\n```\n\n</details>",
    ]
    if reasons:
        parts += ["## Other answers, and why they are wrong", reasons]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    if not LESSONS.exists():
        print(f"error: the lessons are missing: {LESSONS.relative_to(ROOT)}", file=sys.stderr)
        return 1
    folder = Path(sys.argv[1]) / "lessons"
    folder.mkdir(parents=True, exist_ok=True)
    lessons = json.loads(LESSONS.read_text(encoding="utf-8"))
    names = []
    for number, lesson in enumerate(lessons, 1):
        (folder / f"{lesson['id']}.md").write_text(page(lesson, number), encoding="utf-8")
        names.append(f"[{number}. {lesson['title']}]({lesson['id']}.md)")
    (folder / "index.md").write_text("# Lessons\n\nThe texts of the explorer's lessons.\n\n" + "\n".join(f"- {name}" for name in names) + "\n", encoding="utf-8")
    listed = ["- [Lessons](lessons/index.md)"] + [f"  - {name.replace('](', '](lessons/')}" for name in names]
    (folder / "contents.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
