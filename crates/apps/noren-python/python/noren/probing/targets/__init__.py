"""The functions that `nr.probe` calls: functions of the caller (`_signature`, `_libraries`, `_flex`), known functions (`_known`),
and those of transformers (`_hf`), ONNX (`_onnx`) and installed packages (`_packages`)."""
