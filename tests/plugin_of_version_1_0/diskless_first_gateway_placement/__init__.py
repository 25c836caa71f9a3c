"""Chooses the gateways of each rack by a hash."""
