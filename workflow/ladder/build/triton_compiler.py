"""The program that runs Triton's compiler on one kernel. All that knows Triton's own interfaces is here.

Compiling a kernel in Triton runs its file, which is Python. So it is done in a process that triton_request starts for
one kernel, in an empty folder: it reads REQUEST there, and leaves ANSWER and CUBIN. Standard output is the log, with
ptxas' resource lines. Nothing of the package is imported here.
"""

import ctypes
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

REQUEST, ANSWER, CUBIN = "request.json", "answer.json", "kernel.cubin"
_NEEDED = (
    "global_scratch_size",
    "profile_scratch_size",
    "launch_cooperative_grid",
    "launch_pdl",
)
"""Metadata of what a launch would have to provide."""
_HOST = ("/dev", "/proc", "/sys", "/usr")
_PROGRAM = {"subprocess.Popen", "os.exec", "os.posix_spawn"}
_UNSEEN = {
    "os.fork",
    "os.forkpty",
    "os.system",
    "ctypes.dlopen",
    "ctypes.dlsym",
    "socket.connect",
}
"""Audit events of what reads files unseen: programs, which they name first, and others."""


class Refused(Exception):
    """Why a kernel is none that can be compiled or launched."""


class Opened:
    """Files that were opened to be read, and what may have read others unseen, as Python's audit events tell."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.programs: set[str] = set()
        self.unseen: set[str] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if "__pycache__" in path:
                path = importlib.util.source_from_cache(path)
            self.files.add(path)
        elif event in _PROGRAM:
            self.programs.add(os.path.realpath(os.fsdecode(arguments[0])))
        elif event in _UNSEEN:
            self.unseen.add(event)

    def refused(self, digested: list[str]) -> str:
        """What no digest holds, or nothing: a file that is none of `digested`, of Python's or of the system's; a
        program that Triton does not bring; another way to read a file unseen."""
        import triton

        package = Path(triton.__file__).parent.resolve()
        for program in sorted(self.programs):
            if not Path(program).is_relative_to(package):
                return f"starts {program}"
        if self.unseen:
            return f"does {min(self.unseen)}"
        folders = [
            sys.prefix,
            sys.base_prefix,
            str(package.parent),
            os.getcwd(),
            *_HOST,
        ]
        rooms = [*map(os.path.realpath, folders)]
        allowed = {*map(os.path.realpath, [*digested, __file__])}
        for path in map(Path, sorted(self.files - allowed)):
            if path.is_file() and not any(map(path.is_relative_to, rooms)):
                return f"opens {path}"
        return ""


def _function(asked: dict[str, Any]) -> Any:
    """The kernel, from its file, which is run."""
    from triton.runtime.jit import JITFunction

    path = Path(asked["source"])
    sys.path[:0] = [str(path.parent), *asked["includes"]]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Refused(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function = getattr(module, asked["entry"], None)
    if not isinstance(function, JITFunction):
        accepted = "a function under @triton.jit and nothing else"
        kind = type(function).__name__
        raise Refused(f"{asked['entry']} is of type {kind}; accepted: {accepted}")
    return function


def _compile(asked: dict[str, Any]) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function, constants = _function(asked), asked["constants"]
    types, hints = iter(asked["types"]), iter(asked["hints"])
    signature, divisible = dict[str, str](), dict[tuple[int], list[list[Any]]]()
    for place, name in enumerate(function.arg_names):
        signature[name] = "constexpr" if name in constants else next(types)
        if name not in constants and next(hints):
            divisible[(place,)] = [["tt.divisibility", 16]]
    fixed = {
        (function.arg_names.index(name),): value for name, value in constants.items()
    }
    source = ASTSource(function, signature, fixed, divisible)
    return triton.compile(
        source, target=GPUTarget("cuda", asked["arch"], 32), options=asked["options"]
    )


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """What a launch must know of a kernel, and its cubin as a file. Raises Refused, or what Triton raises."""
    made = _compile(asked)
    about = made.metadata
    for name in _NEEDED:
        if value := getattr(about, name, 0):
            why = "of Triton's launcher, which is not provided here"
            raise Refused(f"needs {name} = {value} {why}; accepted: 0")
    maps = list[dict[str, Any]]()
    for descriptor in map(dict, getattr(about, "tensordesc_meta", None) or ()):
        if descriptor.get("fp4_padded") or descriptor.get("is_im2col"):
            why = "has a tensor descriptor of fp4 or im2col"
            raise Refused(f"{why}; accepted: tiles of other types")
        box, swizzle = [*descriptor["block_size"]], descriptor["swizzle"]
        maps.append({"box": box, "swizzle": swizzle})
    Path(CUBIN).write_bytes(made.asm["cubin"])
    return {
        "symbol": about.name,
        "threads": 32 * about.num_warps,
        "shared_bytes": about.shared,
        "tensor_maps": maps,
    }


def main() -> int:
    # PR_SET_PDEATHSIG: it ends with the process that started it.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    # It looks through the packages on the path: before what the kernel opens is noted.
    importlib.import_module("triton.backends")
    asked, opened = json.loads(Path(REQUEST).read_text()), Opened()
    try:
        result = answer(asked)
    except MemoryError:
        raise
    except Exception as error:
        kind = "" if isinstance(error, Refused) else f"{type(error).__name__}: "
        result = {"error": f"{kind}{error}"}
    # In place of messages, which may quote it.
    if unseen := opened.refused(asked["files"]):
        result = {"error": f"its file {unseen}, which its digest does not follow"}
    Path(ANSWER).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
