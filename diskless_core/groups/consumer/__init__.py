"""Groups of the consumer group protocol (KIP-848): what they are, how they change, and who carries that out."""
