"""``lmassay xray``: run the suite, score what was measured elsewhere, compare runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmassay.cli.calibrate import calibrate
from lmassay.cli.finished import default_out, show_run
from lmassay.cli.options import AcceptLicense, AllowPickle, Device, Json, Revision
from lmassay.cli.power import power
from lmassay.cli.progress import shown_stages
from lmassay.cli.reproduce import reproduce
from lmassay.cli.where import Address, ExecutorName, Gpus, Workers, chosen_executor
from lmassay.cli.xray_many import run_many

if TYPE_CHECKING:
    from lmassay.models.language_model import LanguageModel
    from lmassay.xray.run import Settings

app = typer.Typer(
    help="Layer-by-layer option scoring held against its controls.", no_args_is_help=True, rich_markup_mode=None
)

Battery = Annotated[str, typer.Option(help="core50, heldout54, balanced:N, or a JSONL, YAML or CSV file.")]
Seed = Annotated[int, typer.Option(help="Of control labels, intervals and nulls.")]


@app.command()
def run(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL…", help="Bundled names, folders, .gguf files, hub ids.")
    ],
    battery: Battery = "core50",
    protocol: Annotated[str, typer.Option(help="multi-token, first-token or first-distinct-token.")] = "multi-token",
    phases: Annotated[
        str,
        typer.Option(help="Comma-separated: real, controls, paraphrase, patching, ablation, geometry; or all."),
    ] = "real,controls,paraphrase",
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt as user turn of the chat template.")] = False,
    revision: Revision = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default), float64, bfloat16 or float16.")] = None,
    engine: Annotated[str, typer.Option(help="packed, cached, or plain: one sequence per forward pass.")] = "packed",
    depths: Annotated[
        str, typer.Option(help="paper, or distinct: without the last block, which repeats final.")
    ] = "paper",
    lens: Annotated[
        str, typer.Option(help="logit, tuned (the one that models fit-lens keeps for MODEL), or a tuned lens's folder.")
    ] = "logit",
    span: Annotated[int, typer.Option(help="Consecutive depths that make a winning span stable.")] = 2,
    over_length: Annotated[str, typer.Option(help="error or skip: prompts longer than the context.")] = "error",
    ablation: Annotated[str, typer.Option(help="mean, zero or resample: what an ablated output becomes.")] = "mean",
    heads: Annotated[bool, typer.Option("--heads", help="Ablate single attention heads too.")] = False,
    prior: Annotated[
        str, typer.Option(help="edited or clean: whether the neutral prompt is patched and ablated alike.")
    ] = "edited",
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens of one forward pass.")] = None,
    seed: Seed = 0,
    accept_license: AcceptLicense = False,
    allow_pickle: AllowPickle = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    device_map: Annotated[str | None, typer.Option(help="auto: spread a model that is larger than one card.")] = None,
    executor: ExecutorName = "local",
    address: Address = None,
    workers: Workers = 1,
    gpus: Gpus = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder, resumed if it holds this run unfinished; of several models, where theirs go."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model: options scored at every depth, held against relabelled, broken, swapped and reworded prompts."""
    from lmassay.models.lens_name import check_lens_name
    from lmassay.models.source import ModelSource
    from lmassay.xray.batteries import load_battery
    from lmassay.xray.run import Settings, run_xray

    settings = Settings(
        protocol=protocol,  # type: ignore[arg-type]
        phases=tuple(p.strip() for p in phases.split(",") if p.strip()),
        chat=chat,
        depths=depths,
        span=span,
        engine=engine,
        over_length=over_length,
        seed=seed,
        ablation=ablation,
        heads=heads,
        prior=prior,
        batch_tokens=batch_tokens,
    )
    chosen = load_battery(battery, seed=seed)
    check_lens_name(lens)
    place = chosen_executor(executor, address, workers, gpus)
    if len(models) > 1 or place is not None:
        rest = (revision, device, dtype, device_map, trust_remote_code, allow_pickle, accept_license)
        own = [
            default_out("xray", Path(name).name, revision or "", Path(battery).name, *_unusual(settings, dtype, lens))
            for name in models
        ]
        folders = [f if out is None else out / f.name for f in own]
        sources = [ModelSource(name, *rest) for name in models]
        run_many(sources, folders, battery, settings, lens, place, as_json=as_json)
        return
    (model,) = models

    def open_it() -> LanguageModel:
        from lmassay.models.open import open_model
        from lmassay.models.tuned_lens import with_lens

        print(f"opening {model}", file=sys.stderr)
        opened = open_model(
            model,
            revision=revision,
            device=device,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
            accept_license=accept_license,
            device_map=device_map,
        )
        return with_lens(opened, lens)

    path = out or default_out(
        "xray", Path(model).name, revision or "", Path(battery).name, *_unusual(settings, dtype, lens)
    )
    command = " ".join(["lmassay", *sys.argv[1:]])
    with shown_stages() as progress:
        result = run_xray(open_it, chosen, path, settings, command=command, progress=progress)
    if result.resumed_shards:
        print(f"{result.resumed_shards} of {result.n_shards} units were already done", file=sys.stderr)
    show_run(result.path, result.scores, as_json=as_json)


def _unusual(settings: Settings, dtype: str | None, lens: str) -> list[str]:
    """What of a run's settings is not the default, so that two runs that differ in it have two folders."""
    usual = type(settings)()
    named = ("protocol", "depths", "engine", "over_length", "ablation", "prior", "span", "seed")
    return [
        "" if lens == "logit" else f"{Path(lens).name}-lens",
        "" if settings.phases == usual.phases else "+".join(settings.phases),
        *(f"{n}-{getattr(settings, n)}" for n in named if getattr(settings, n) != getattr(usual, n)),
        *(name for name in ("chat", "heads") if getattr(settings, name)),
        dtype or "",
    ]


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="Option scores made elsewhere: Parquet, CSV or JSONL.")],
    battery: Annotated[
        str | None, typer.Option(help="Battery the task ids belong to, if the file has only ids.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the model or method.")] = None,
    depths: Annotated[str, typer.Option(help="paper or distinct.")] = "paper",
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Run folder.")] = None,
    as_json: Json = False,
) -> None:
    """Hold option scores computed elsewhere against the same controls, nulls and verdicts."""
    from lmassay.xray.outside import score_file

    path = out or default_out("xray-score", name or file.stem)
    document = score_file(
        file, path, battery=battery, name=name or file.stem, depths=depths, seed=seed, command=" ".join(sys.argv[1:])
    )
    show_run(path, document, as_json=as_json)


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more run folders, of core50 and heldout54 or of one battery.")
    ],
    figure: Annotated[Path | None, typer.Option(help="Draw the trees and PSI by family: a .svg or .png file.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Put runs side by side and look for patterns over them; refused when they were measured differently."""
    from lmassay.reports.charts import check_suffix, write_figure
    from lmassay.xray.compare import compare_runs

    if figure is not None:
        check_suffix(figure)
    comparison = compare_runs(runs, seed=seed)
    if figure is not None:
        write_figure(comparison, figure)
    if as_json:
        typer.echo(json.dumps(comparison, indent=1, allow_nan=False))
        return
    from lmassay.reports.patterns import print_patterns
    from lmassay.reports.terminal import print_comparison

    print_comparison(comparison)
    typer.echo()
    print_patterns(comparison["patterns"])
    if figure is not None:
        typer.echo(f"\nfigure: {figure}")


app.command()(power)
app.command()(reproduce)
app.command()(calibrate)
