"""What the site is made with, besides Markdown and its theme: drawings, charts of the benchmarks, and how they get in.

- `svg`: shapes and colours. `diagrams`: the drawings of `docs/images`. `charts`: those of the benchmarks.
- `page_extension`: what becomes of drawings and tables in a page. `python -m docs_site [--check]` writes what is drawn.
"""
