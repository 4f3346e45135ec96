"""The audit of a model by pairs of forward passes: if a change of hidden inputs changes an output, the model's mask is wrong.

`nr.audit` runs the audit.
"""

from .audit import audit as audit
from .checks.pairs import BATTERY as BATTERY, Test as Test
from .intent import Intent as Intent
from .report import Check as Check, Report as Report
from .rounding import Rounding as Rounding
from .trial import Outcome as Outcome, Verdict as Verdict
