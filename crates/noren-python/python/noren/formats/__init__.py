"""Masks in the formats of other systems: exact, or refused with the reason.

Everything here is also a name of `noren` itself (`nr.to_flex`, `nr.from_keep`, ...), looked up when it is first used.
"""
