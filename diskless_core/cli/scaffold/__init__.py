"""`diskless plugins new`: a complete project for a backend, written from templates.

`kinds.py` has what differs between nouns, `project.py` renders the files, `writing.py` puts them on disk, and
`command.py` is the command. Templates are package data in `templates/`.
"""
