import noren as nr

spec = nr.Spec("causal & padding + softcap(30)")
bound = spec.mask.bind(nr.Shape(5, 5, batch=2), nr.Facts.from_json('{"lengths":[5,3]}'))
bound
