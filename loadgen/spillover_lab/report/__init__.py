"""What the tools share to show results: one style sheet, one frame for pages, one way to draw.

Templates lie beside what they show, named `*.jinja`; those here are for all pages. What a page
says is known to those who make it.
"""
