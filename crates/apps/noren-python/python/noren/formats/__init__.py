"""Converts masks to and from the formats of other systems. A conversion is exact; if this is impossible, it raises
`ExportError` with the reason.

Every function is also a name of `noren` (`nr.to_flex`, `nr.from_keep`, ...), imported when it is first used.
"""
