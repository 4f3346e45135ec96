"""The limits, their exceptions, and the list of what the repository has one of."""

from __future__ import annotations

import re
from dataclasses import dataclass

FILE_LINES = 600
FUNCTION_LINES = 80

# Functions that may be longer, as (the file's name, the function) with the reason.
LONG_FUNCTIONS: dict[tuple[str, str], str] = {
    ("_kernels.py", "key_gradients"): "the body of a GPU kernel, ten lines of which are its arguments",
    ("_decode_kernels.py", "chunks_forward"): "the body of a GPU kernel, ten lines of which are its arguments",
}


@dataclass(frozen=True)
class Single:
    """Something that exists once: code that matches `pattern` is in one file, or only in `folder` where that is given.

    `raw` patterns are searched in the code with its strings, others without them.
    """

    name: str
    pattern: re.Pattern[str]
    folder: str = ""
    raw: bool = False


# Second places of a rule, as (the rule's name, the file) with the reason.
SECOND_PLACES: dict[tuple[str, str], str] = {
    ("interval type", "crates/core/noren-mask/src/sets/set.rs"): "a range as a mask's text has it: of 64 bits, and it may have no end",
    ("interval type", "crates/core/noren-mask/src/plan/mod.rs"): "the serial and public form of a plan's spans: an interval with its kind, without algebra",
}

# The verifier shares no code with what it checks, so nothing here concerns it.
EXEMPT = re.compile(r"^crates/tools/noren-verify/|^benches/")


def single(name: str, pattern: str, folder: str = "", raw: bool = False) -> Single:
    return Single(name, re.compile(pattern), folder, raw)


SINGLES = [
    single("interval type", r"\bstruct\s+(?:Interval|Span|TileSpan|Run)\b(?!\s*<)"),
    single("values for each batch row", r"\b(?:enum|struct|type)\s+(?:PerRow\b|Rows<T>)"),
    single("setting a range of bits of cells", r"\bfn\s+(?:set_bits|set_range)\b"),
    single("tokens of documents", r"\bfn\s+(?:documents_start|documents_begin|document_spans)\b"),
    single("escaping of text in pictures", r"\bfn\s+(?:escape|escaped|escape_xml)\b"),
    single("hexadecimal text of bytes", r":02x\}", raw=True),
    single("FNV-1a", r"(?i)cbf_?29ce_?4842_?2232_?5|\bfn\s+fnv\w*"),
    single("first line of a message", r"\.lines\(\)\.next\(\)"),
    single("header of npy files", r"\\x93NUMPY\\x01", raw=True),
    single("detection of the processor's features", r"\bis_x86_feature_detected!", "crates/core/noren/src/processor/isa.rs"),
    single("generator behind `random`", r"(?i)0xd251_?1f53"),
]
