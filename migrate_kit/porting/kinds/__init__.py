"""How each kind of layer holds its settings, on both sides."""
