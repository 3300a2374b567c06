"""From PyTorch to MindSpore: parameters, settings, checkpoints, optimizers."""
