"""Functions of masks and of mask arrays: the forms in which a mask is given (`_forms`), `nr.facts_from` (`_batch`), `nr.check` and
`nr.recognise` (`_doctor`), `nr.flow` (`_flow`), `nr.code` (`_code`), pictures (`_plot`) and printed results (`_views`)."""
