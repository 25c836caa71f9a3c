"""How quick a configured backend is at what a broker asks of it, beside its noun's default. Leaves nothing behind."""
