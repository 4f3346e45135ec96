"""Checks and conversion of arguments: numbers and lists (`_given`), arrays of several libraries (`_arrays`), tensors (`_tensors`),
facts (`_facts`), the call of attention on tensors (`_call`) and the key-value caches of transformers (`_caches`)."""
