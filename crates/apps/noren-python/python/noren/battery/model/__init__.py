"""The model under test: its calls (`subject`), the wrappers around it (`wrappers`), and its execution in float64 (`precision`)."""
