"""Is this machine ready: what is installed, what is plugged in."""
