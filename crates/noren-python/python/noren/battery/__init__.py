"""The audit: tests of a running model by pairs of forward passes. The tests find outputs that depend on inputs that the mask
hides.

`nr.audit` runs the audit.
"""

from .audit import audit as audit
from .checks import BATTERY as BATTERY, Test as Test
from .intent import Intent as Intent
from .report import Check as Check, Report as Report
from .rounding import Rounding as Rounding
from .trial import Outcome as Outcome, Verdict as Verdict
