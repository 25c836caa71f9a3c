"""Client quotas (KIP-13, KIP-55, KIP-219): how fast clients may go, how fast they went, how long they have to wait."""
