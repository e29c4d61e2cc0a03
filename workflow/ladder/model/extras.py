"""The columns of the tables of the step `extras`, in the words of model.schemas, on which every record depends."""

from collections.abc import Mapping

_TABLES = {
    # Errors over |A||B|, both against fp64; of a library there is no variant. `inputs` is their kind, all fp32.
    "accuracy": """gpu_uuid sweep variant rung dtype layout m:int n:int k:int inputs who max_error:float
        rms_error:float""",
    # Cold launches of a kernel and of a library in turns, with C = A B + beta C.
    "accumulation": """gpu_uuid sweep variant rung dtype layout m:int n:int k:int beta:float reference algorithm clock
        samples:int median_us:float reference_median_us:float speedup:float speedup_low:float speedup_high:float""",
}
SCHEMAS: Mapping[str, Mapping[str, str]] = {
    table: {name: kind or "text" for name, _, kind in (word.partition(":") for word in words.split())}
    for table, words in _TABLES.items()
}
"""Table -> its columns with their kinds."""

EXTRAS = tuple(SCHEMAS)
"""Tables that no sweep's measurements make, but a step of its own."""
