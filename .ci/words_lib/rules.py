"""Words that the texts of this project do not use, with what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A word or turn: its name in findings, its pattern, what to write instead, and a sentence that the self-test plants."""

    name: str
    pattern: re.Pattern[str]
    instead: str
    planted: str
    docs_only: bool = False


def rule(name: str, pattern: str, instead: str, planted: str, docs_only: bool = False) -> Rule:
    """Makes a rule. In `pattern`, a space stands for any gap between words, also the end of a line."""
    flags = re.I if not docs_only else 0
    return Rule(name, re.compile(pattern.replace(" ", r"\s+"), flags), instead, planted, docs_only)


# Checked in all texts.
WORDS = [
    rule("mend", r"\bmend(?:s|ed|ing)?\b", "fix, repair", "Mends a mask."),
    rule("put right", r"\bput(?:s|ting)? right\b", "fix, repair", "This puts right the mask."),
    rule("say", r"\b(?:say|says|said|saying|unsaid)\b", "define, give, name, state", "The mask that was said."),
    rule("tell", r"\b(?:tell|tells|told|telling|untold)\b", "give, show, report, recognise", "A told mask."),
    rule("speak", r"\b(?:speaks?|spoken|speaking)\b", "refer to, use", "The rows that it speaks of."),
    rule("ask", r"\b(?:asks|asked|asking)\b", "request, require, take; of a person: call, choose", "What is asked of it."),
    rule("want", r"\b(?:wants?|wanted|wanting)\b", "need, request, expect", "The wanted rows."),
    rule("nobody", r"\b(?:nobody|somebody|anybody|everybody|whoever|whomever|someone)\b", "no query, the caller, the user", "Nobody reads it."),
    rule("what people have", r"\b(?:what|as) (?:people|others|one) (?:have|has|had)\b", "the arrays that you have", "It takes what people have."),
    rule("hang on", r"\b(?:hangs?|hung|hanging) (?:up)?on\b", "depend on", "It hangs on the mask."),
    rule("dear", r"\b(?:dear|dearer|dearest)\b", "costly, most expensive", "The dearest first."),
    rule("sick", r"\b(?:sick|sickness|patients?|healthy|ill)\b", "faulty, input, correct", "A sick mask."),
    rule("wild", r"\b(?:wild|wildly)\b", "non-finite", "A wild value."),
    rule("hull", r"\bhulls?\b", "covering range", "The hull of it."),
    rule("leaf", r"\bleaf\b", "resolved atom", "A leaf of the mask."),
    rule("keep (a noun)", r"\b(?:an?|the|its|this|each|every|of) keeps?\b(?! (?:arrays?|cells|convention|masks?|matrix|tensors?|and|or|its|the|a)\b|-)", "allowed cells", "The keep of it."),
    rule("desk", r"\bdesks?\b", "worker state", "The desk of a worker."),
    rule("level of a processor", r"\bprocessor(?:'s)? levels?\b|\blevels? of (?:a|the|this|each) processor\b", "ISA, processor path", "The processor's level."),
    rule("alike", r"(?<!look-)\balikes?\b", "equal, uniform", "Rows that are alike."),
    rule("way", r"\bways\b|\b(?:a|one|no|another|which) way\b(?! (?:to|that|of)\b)|\bon (?:its|their|the) way\b|\bunder way\b", "path; how ...", "They go a way."),
    rule("moment", r"\bmoments\b", "time, timing", "The first moments."),
    rule("at hand", r"\bat hand\b", "available", "The rows at hand."),
    rule("in turn", r"\b(?:in|by) turns?\b", "one after another, alternately", "They do it in turn."),
    rule("stand", r"\b(?:stand|stands|stood|standing)\b", "be, be stored, have the position", "It stands in a row."),
    rule("lie", r"\b(?:lie|lies|lay|lying|lain)\b", "be, be stored", "The rows lie there."),
    rule("made of", r"\bwhat (?:it|they|an?|the|this|these|each|[a-z]+s)(?: [a-z]+)? (?:is|are) made (?:of|from)\b", "configuration, fields", "What it is made of."),
    rule("had better", r"\bhad better\b", "should", "It had better go."),
    rule("no more", r"\bno more what\b|\bany more what\b", "no longer", "It is no more what it was."),
    rule("for being", r"\bfor being\b", "because it is", "It is refused for being long."),
    rule("hold against", r"\b(?:hold|holds|held|holding) [^.;:]{0,40}\bagainst\b", "compare with", "The test holds it against the definition."),
    rule("anew", r"\banew\b", "again", "It is made anew."),
    rule("inversion", r"(?:\A\s*|[.;:] )(?:Of|With|From|To) (?:what|which|whom|that which)\b", "subject, verb, object", "Of which attention."),
]

# Checked in documentation comments only, at their beginning.
BEGINNINGS = [
    rule("begins with What", r"\A\s*(?:What|That which|Those (?:of|that)|Whose)\b", "name the thing", "What it holds.", docs_only=True),
    rule("begins with a pronoun", r"\A\s*(?:It|They|Them|One of|That of|Its|Theirs?|Both|All of (?:it|them)|None of (?:it|them))\b", "repeat the noun", "It holds rows.", docs_only=True),
    rule("begins with The same", r"\A\s*The (?:same|other|others)\b", "repeat the noun", "The same for rows.", docs_only=True),
    rule("begins with Most", r"\A\s*(?:Most|At most|How)\b", "the maximum number of; the number of; the manner", "Most rows.", docs_only=True),
]

# Checked in identifiers, as words between underscores or capital letters.
NAMES = {
    "mend": "repair",
    "mended": "repaired",
    "told": "given, recognised",
    "hull": "covering range",
    "desk": "worker state",
    "dearest": "most expensive",
    "sick": "faulty",
    "alike": "equal, uniform",
    "wild": "non_finite",
    "nobody": "unused",
    "whoever": "caller",
    "room": "limit, space",
}

RULES = WORDS + BEGINNINGS
