"""How a broker or a tool finds plugins, loads and checks them, makes their backends, and guards itself from them.

`nouns.py` has the table of nouns, and everything else here goes by it.
"""
