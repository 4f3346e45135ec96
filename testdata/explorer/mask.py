import noren

spec = noren.Spec("causal & padding + softcap(30)")
shape = noren.Shape.from_json("{\"batch\":2,\"heads\":1,\"kv_heads\":1,\"q_len\":5,\"kv_len\":5,\"query_offset\":0}")
bound = spec.mask.bind(shape, noren.Facts.from_json("{\"lengths\":[5,3]}"))
print(bound.plan().stats())
