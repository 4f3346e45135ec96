"""Runs `python -m noren probe`, the probe of attention functions, from a shell."""

import sys


def main(arguments: list[str]) -> int:
    """Runs the command with the arguments `arguments`, and returns its exit status (0: success)."""
    if arguments[:1] == ["probe"]:
        from .probing.command import main as probe

        return probe(arguments[1:])
    print("usage: python -m noren probe [TARGET ...] (python -m noren probe --help lists the options)", file=sys.stderr)
    return 0 if arguments[:1] in (["--help"], ["-h"]) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
