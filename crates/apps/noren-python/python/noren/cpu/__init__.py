"""Attention on the CPU for arrays of any library: `nr.attention` (`_attention`; `_double` in float64), and `nr.KvCache`
(`_cache`) with the masks of trees of guesses (`_cache_tree`)."""
