"""Studies: variants trained with several seeds, evaluated on the same problems, and compared in one table.

A study consists of plain ``sce`` commands (`arms`). They run in order, some in parallel, and never twice (`steps`).
Their files become one JSON record (`study_record`), and the record a table (`study_tables`). `table2_command` and
`table3_command` are the subcommands of ``sce reproduce``.
"""
