"""Theory that nothing but a document's figures, `spillover exact` and tests ask: Johnson's model of
the distributed queue (`chain` over `producer`, `request` and `root`). What the product computes
with is in `spillover.sim.theory`.
"""
