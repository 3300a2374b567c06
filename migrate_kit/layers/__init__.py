"""The comparison engine: capture a run layer by layer, capture another, compare."""
