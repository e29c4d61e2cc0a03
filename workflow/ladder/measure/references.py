"""What kernels are timed against: kernels, libraries and external references, verified on the bench."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.gpu.device import Launcher, OutOfDeviceMemory
from ladder.gpu.external import ExternalCode
from ladder.gpu.timing import CheckedLaunch
from ladder.measure.bench import REFERENCE, Bench, CellOutcome
from ladder.model.cell import Cell, Partner
from ladder.model.errors import LadderError
from ladder.model.plan import Plan, Task
from ladder.model.problem import COPY, Params

_HELD_S = 0.05  # longer than most launches take


@dataclass
class VerifiedReference:
    """A reference with outputs of its own; `swapped` writes to the variant's. `us`: about how long a launch takes."""

    launcher: Launcher
    swapped: Launcher | None = None
    us: float | None = None


class BenchWithReferences(Bench):
    """A bench with the references of the current instance.

    references: as verified, None where one is missing or wrong. notes: why, by its name. doing: is told what may end
    the process, ahead of it, and "" behind it.
    """

    references: dict[Any, VerifiedReference | None]
    notes: dict[str, str]

    def __init__(self, plan: Plan, cubins: Path) -> None:
        super().__init__(plan, cubins)
        self.external = {
            name: ExternalCode(file) for name, file in plan.external.items()
        }
        self.doing: Callable[[str], None] = lambda subject: None
        self.forget_references()

    def release(self) -> None:
        """Give up the current instance with its references."""
        super().release()
        self.forget_references()

    def forget_references(self) -> None:
        """Begin anew for another instance."""
        self.references = {}
        self.notes = {}
        self._copy_us: float | None = None

    def reference(self, task: Task, partner: Partner) -> VerifiedReference:
        """A task's reference. Raises CellOutcome for none or a wrong one."""
        if task.reference is None:
            reference = self.library(partner, self.reference_params(task))
            if reference is None:
                reason = "no reference: " + "; ".join(self.noted())
                # An algorithm that was chosen was there, on some GPU of the model.
                gone = bool(partner.algorithm)
                raise CellOutcome("unsupported", reason, transient=gone)
            return reference
        reference = self.references.get(partner)
        if reference is None:
            with self.current.writing_to(REFERENCE):
                try:
                    self.verify_edges(partner.reference, task.cell)
                    kernel, _, _ = self.verified(task.reference)
                except CellOutcome as outcome:
                    raise outcome.of(f"the reference {partner}") from outcome
            reference = self.references[partner] = VerifiedReference(kernel)
        return reference

    def reference_params(self, task: Task) -> Params:
        """What the answer of a task's reference depends on: a kernel's parameters, of others those of the problem."""
        if task.reference is not None:
            return task.reference.params
        assert task.launch is not None
        return {name: task.launch.params[name] for name in self.problem.parameters}

    def another(self, task: Task, partner: Partner) -> Launcher:
        """A task's `reference` anew, for the outputs that are there. Raises LadderError."""
        if task.reference is not None:
            return self.load(task.reference, self.current)
        return self.loaded_library(partner, self.reference_params(task))

    def swapped_reference(self, task: Task, partner: Partner) -> Launcher:
        """A task's `reference`, writing to the variant's outputs. One launch has loaded its kernel."""
        reference = self.reference(task, partner)
        if reference.swapped is None:
            reference.swapped = self.another(task, partner)
            with self.timer.working():
                # A library may load another kernel for another place.
                reference.swapped()
        return reference.swapped

    def reference_us(self, reference: VerifiedReference) -> float:
        """About how long a launch of a reference takes, in us, once for the current instance."""
        if reference.us is None:
            (reference.us,) = self.timer.quick_medians([reference.launcher])
        return reference.us

    def candidates(self, choice: Cell) -> list[Partner]:
        """All that may be the reference of a choice; what is missing leaves a note. Raises CellOutcome for none."""
        candidates = list[Partner]()
        for name in choice.reference.libraries:
            if name in self.external:
                if self.library(Partner(name), choice.params) is not None:
                    candidates.append(Partner(name))
                continue
            try:
                algorithms = self.current.library(name)
                candidates += [Partner(name, algorithm) for algorithm in algorithms]
            except LadderError as error:
                self.notes[name] = str(error)
        if not candidates:
            raise CellOutcome("unsupported", "; ".join(self.noted()))
        return candidates

    def loaded_library(self, partner: Partner, params: Params) -> Launcher:
        """A library or an external reference, for the outputs that are there. Raises LadderError without one."""
        if partner.reference in self.external:
            external = self.external[partner.reference]
            return external.launcher(self.problem, self.current, params)
        algorithms = self.current.library(partner.reference)
        if partner.algorithm not in algorithms:
            asked = partner.algorithm or "one without a name"
            raise LadderError(f"its list of algorithms does not hold {asked!r}")
        return algorithms[partner.algorithm]

    def library(self, partner: Partner, params: Params) -> VerifiedReference | None:
        """A library or an external reference, verified, with outputs of its own; None, and a note, for none."""
        key = partner, *params.items()
        if key not in self.references:
            external = partner.reference in self.external
            verify = self._verify_external if external else self._verify_library
            with self.current.writing_to(REFERENCE):
                launcher = verify(partner, params)
            self.references[key] = VerifiedReference(launcher) if launcher else None
        return self.references[key]

    def _verify_library(self, partner: Partner, params: Params) -> Launcher | None:
        """A library reference; None, and a note, where there is none or its result is wrong."""
        try:
            launcher = self.loaded_library(partner, params)
        except LadderError as error:
            self.notes[str(partner)] = str(error)
            return None
        launcher()  # which loads its kernel
        if partner.reference == COPY:
            return launcher
        check, _ = self.check(launcher, {})  # libraries have no parameters
        if check.correct:
            return launcher
        self.notes[str(partner)] = f"wrong: {check}"
        return None

    def _verify_external(self, partner: Partner, params: Params) -> Launcher | None:
        """An external reference; None, and a note, where it fails or is wrong.

        Raises CellOutcome, which names it, where memory or the context is spoilt.
        """
        name = partner.reference
        notes = self.notes
        file = str(self.external[name])
        subject = f"the reference {name}: {file}"
        self.doing(subject)
        try:
            launcher = self.loaded_library(partner, params)
            launcher()  # which loads its kernels
            self.gpu.sync()
            check, _ = self.check(launcher, params)
            if not check.correct:
                notes[name] = f"{file}: wrong: {check}"
            elif self._enqueues_elsewhere(launcher, params):
                notes[name] = f"{file}: does not enqueue on its stream"
            else:
                return launcher
        except OutOfDeviceMemory:
            raise
        except CellOutcome as outcome:
            raise outcome.of(subject) from outcome
        except Exception as error:
            if not self.recovers():
                reason = f"{subject}: {type(error).__name__}: {error}"
                raise CellOutcome("launch_error", reason, spoilt=True) from error
            if not isinstance(error, LadderError):
                raise
            text = str(error)
            notes[name] = text if file in text else f"{file}: {text}"
        finally:
            self.doing("")
        return None

    def _enqueues_elsewhere(self, launcher: Launcher, params: Params) -> bool:
        """True if the reference launches on another stream.

        It then finishes while our stream is blocked, the poison is written afterwards, and the check fails.
        """

        def launch() -> None:
            self.current.poison_outputs()
            launcher()
            time.sleep(_HELD_S)

        self.timer.time_once(CheckedLaunch(launch))
        with self.timer.working():
            return not self.current.check(params).correct

    def noted(self) -> list[str]:
        """Which references are missing at these operands or are wrong, and why: what is true of many, once."""
        names_by_text = dict[str, list[str]]()
        for name, text in self.notes.items():
            names_by_text.setdefault(text, []).append(name)
        lines = []
        for text, (name, *others) in names_by_text.items():
            more = f" and {len(others)} more" if others else ""
            lines.append(f"{name}{more}: {text}")
        return lines

    def copy_us(self) -> float | None:
        """Time (us) of a copy of the instance's data, for problems that have one as a library."""
        if self._copy_us is None and COPY in self.problem.libraries:
            copy = list(self.current.library(COPY).values())
            (self._copy_us,) = self.timer.quick_medians(copy)
        return self._copy_us
