"""`diskless cluster demo`: a cluster on loopback that is broken in every way it must survive, and what that proves."""
