"""Words of figures: the title inside one, which is its text where pictures are not shown, and names on axes."""

import re
from typing import Any

from ladder.model.cell import size_label
from ladder.model.problem import COPY
from ladder.model.sweep import Figure
from ladder.report import words
from ladder.results.sweep_data import FigureData

_MOST_LETTERS = 60  # of a description that an axis has room for


def title_of(data: FigureData) -> str:
    """What the answer says that a figure shows; else what its sweep is about, and which one of several it is."""
    if data.title or len(data.sweep.figures) == 1:
        return data.title or data.sweep.title
    return f"{data.sweep.title}: {which(data.figure)}"


def which(figure: Figure) -> str:
    """bn by bm, 4096: what tells a figure from the others of its sweep."""
    axes = filter(None, [figure.x, figure.y, figure.hue])
    what = " by ".join(axes) or figure.kind
    return f"{what}, {size_label(figure.size)}" if figure.size else what


def rival(data: FigureData) -> str:
    """What cells are timed against in a word or two; cuBLAS is the faster of cuBLAS and cuBLASLt."""
    libraries = list(data.sweep.reference.libraries)
    if data.sweep.reference.kernel:
        return "its baseline"
    if libraries == [COPY]:
        return "a copy"
    if "cublas" in libraries and "cublaslt" in libraries:
        libraries.remove("cublaslt")
    libraries = [library.removesuffix("_fast") for library in libraries]
    names = [*map(words.proper, dict.fromkeys(libraries))]
    return " or ".join(names) if len(names) < 3 else "the fastest library"


def change_label(value: float) -> str:
    """A gain beside a bar: +14 %, -5 %, and from two times on 2.7 times."""
    return words.change_by(value).replace("-", "\N{MINUS SIGN}")


def said(name: str, value: Any) -> str:
    """A parameter's value in words: the value alone where it is one, else with the parameter's name."""
    text = str(value).replace("_", " ")
    is_word = re.fullmatch(r"[^\W\d].*", text)
    return text if is_word else f"{name.replace('_', ' ')} {text}"


def axis_words(data: FigureData, name: str) -> str:
    """A parameter in words with its unit, for an axis: how its kernel's description begins, and its name."""
    for kernel in data.sweep.kernels.values():
        axis = kernel.parameters.get(name)
        if axis:
            meaning = re.split(r"[;:,(]", axis.description)[0].strip()
            unit = f", {axis.unit}" if axis.unit and axis.unit not in meaning else ""
            fits = len(meaning) <= _MOST_LETTERS
            return f"{meaning}{unit} ({name})" if fits else f"{name}{unit}"
    return name
