"""Tests what an attention function really computes. Each question, such as "does the function apply this mask?", needs one or
two calls of the function.

The probe runs as the Python function `nr.probe`, or as the command `python -m noren probe`.
"""

from ._call import Adapter as Adapter, Answer as Answer, Call as Call
from ._probe import probe as probe
from ._report import Entry as Entry, Report as Report, Verdict as Verdict, table as table
from .targets._known import TARGETS as TARGETS
from .targets._signature import Signature as Signature
