"""Conversion of masks to and from the formats of other systems: exact, or an `ExportError` with the reason.

Every function is also a name of `noren` (`nr.to_flex`, `nr.from_keep`, ...), imported when it is first used.
"""
