"""Private text: found, traced to tokens, hidden by masks in every layer, and the proof that outputs do not depend on it.

>>> import noren as nr
>>> [(f.kind, f.text) for f in nr.private.find("Mail ann@x.example or call +44 20 7946 0958")]
[('email', 'ann@x.example'), ('phone', '+44 20 7946 0958')]

`find` finds private text, `encode` and `locate` return the tokens that contain it, `Hide`, `Clearance` and `Heads` are the policies.
"""

from ._encode import Encoded as Encoded, encode as encode
from ._find import (
    KINDS as KINDS,
    Detectors as Detectors,
    Finding as Finding,
    Found as Found,
    Recognizer as Recognizer,
    find as find,
)
from ._policy import Clearance as Clearance, Heads as Heads, Hide as Hide, Policy as Policy
from ._tokens import Tokens as Tokens, locate as locate
