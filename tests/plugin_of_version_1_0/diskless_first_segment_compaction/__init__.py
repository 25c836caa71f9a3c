"""Makes one segment after the other, in memory."""
