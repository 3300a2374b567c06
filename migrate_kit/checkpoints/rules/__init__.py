"""The rules that turn a checkpoint's tensors into a model's, one kind a module."""
