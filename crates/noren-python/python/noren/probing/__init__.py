"""The probe: finds out what an attention function really computes, with two calls for each question.

`nr.probe` runs the probe, `python -m noren probe` from a shell.
"""

from ._call import Adapter as Adapter, Answer as Answer, Call as Call
from ._custom import CallAdapter as CallAdapter
from ._known import TARGETS as TARGETS
from ._probe import probe as probe
from ._report import Entry as Entry, Report as Report, Verdict as Verdict, table as table
from ._signature import Signature as Signature
