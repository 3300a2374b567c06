"""The networks whose weights are converted, as torch modules."""
