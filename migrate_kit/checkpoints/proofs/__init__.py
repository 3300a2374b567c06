"""Independent executions of an original, to compare a converted network with."""
