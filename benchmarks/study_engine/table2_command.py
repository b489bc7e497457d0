"""``sce reproduce table2``: models without training, on the evaluation problems of table 3."""

from __future__ import annotations

import click

from securecoderl_edge.commands.console import say
from securecoderl_edge.commands.names import MODEL
from securecoderl_edge.commands.options import examples, options_from, output_formats
from securecoderl_edge.commands.terminal_tables import TABLE_FORMATS, publish_tables
from securecoderl_edge.errors import UsageError
from study_engine.table2 import Table2, Table2Settings, plan_table2
from study_engine.table3 import refuse_with_quick


@click.command(epilog=examples("sce reproduce table2 nano runs/starter/exports/starter-q8_0.gguf"))
@click.argument("models", type=MODEL, nargs=-1, metavar="MODEL...")
@options_from(Table2Settings)
@output_formats(**TABLE_FORMATS)
def table2(models: tuple[str, ...], config: Table2Settings, output: str | None) -> None:
    """Evaluate models without training, on the evaluation problems of table3.

    MODEL is nano, a GGUF file, an ONNX or Hugging Face folder, or a Hugging Face repo id.
    """
    from securecoderl_edge.commands.measuring import calibrated, measure_all, refuse_missing
    from securecoderl_edge.evaluation.bench import Bench, choose_models
    from securecoderl_edge.runtimes.placement import check_device
    from securecoderl_edge.scoring.scorer import Scorer

    if not models:
        raise UsageError("Missing models to evaluate. Example: sce reproduce table2 nano path/to/model")
    refuse_with_quick(config, "samples", "limit")
    specs, _ = choose_models(models)
    check_device(specs, config.device, tell=say)
    sets = plan_table2(config, specs, say)
    folder, factor = config.folder, calibrated(config.folder)
    with Scorer(time_factor=factor) as scorer:
        benches = [
            Bench(specs, measure_all(specs, problems, scorer, each, folder, factor), [], problems, each, factor)
            for each, problems in sets
        ]
    table = Table2(config, benches)
    publish_tables(output, table.record(), table.tables, folder / "table2.json")
    refuse_missing(table.missing, len(specs))
