"""Studies: variants trained with several seeds, measured on the same problems, and put into one table.

A study consists of nothing but commands of ``sce`` that anyone could type (`arms`); they are run in order, some side by
side, and never twice (`steps`); what they left on disk becomes one JSON record (`record`), and that a table (`tables`).
"""
