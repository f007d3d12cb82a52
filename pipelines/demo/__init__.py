"""The demonstration: a real model retrained again and again on this machine."""
