"""Theory: closed forms and exact solutions, as pure functions.

Each module names its document and equations, and derives the errata beside the code that uses
them. No simulation, no file, no option.
"""
