"""Where the records of partitions lie, for readers that ask no broker for them, and how that is sent. Pure."""
