"""Load any checkpoint, say why it does not fit a network, repair it, convert it."""
